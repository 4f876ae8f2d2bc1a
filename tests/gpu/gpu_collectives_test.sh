#!/bin/bash
# Runs gpu_collectives on the fake driver: PROGRAM OPTION... All rows of its table
# have to be there. How the ranks are connected, and how the driver behaves, is in
# the environment.
set -uo pipefail
log=$TEST_TMPDIR/log

"$@" 2>&1 | tee "$log"
((PIPESTATUS[0] == 0)) || exit 1
for collective in allreduce reduce-scatter all-gather broadcast barrier; do
  grep -qE "^\| $collective \| [0-9]+ \| [0-9]+ \| right \|$" "$log" || {
    echo "no row of $collective"
    exit 1
  }
done
