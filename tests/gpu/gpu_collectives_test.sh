#!/bin/bash
# Runs gpu_collectives on the fake driver: BOUND WAYS PROGRAM OPTION... All rows of its
# table, by each of the WAYS, have to be there, its seed, and what CPU time it took: at
# most BOUND seconds, unless that is "none" or a sanitizer looks on. How the driver
# behaves is in the environment.
set -uo pipefail
bound=$1 ways=$2
shift 2
log=$TEST_TMPDIR/log

fail() {
  echo "$*"
  exit 1
}

"$@" 2>&1 | tee "$log"
((PIPESTATUS[0] == 0)) || exit 1
for collective in allreduce reduce-scatter all-gather broadcast barrier reduce gather \
  scatter all-to-all send-receive; do
  for way in $ways; do
    grep -qE "^\| $collective \| $way \| [0-9]+ \| [0-9]+ \| right \|$" "$log" ||
      fail "no row of $collective by $way"
  done
done
grep -qE '^gpu_collectives: --cases [a-z]+ --seed [0-9]+: [0-9]+ cases' "$log" || fail "no seed"
seconds=$(sed -nE 's/^gpu_collectives: ([0-9]+)\.[0-9] s of CPU$/\1/p' "$log")
[[ -n $seconds ]] || fail "no CPU time"
if [[ $bound != none && -z ${ASAN_OPTIONS:-} ]]; then
  ((seconds < bound)) || fail "it took $seconds s of CPU, and not less than $bound"
fi
