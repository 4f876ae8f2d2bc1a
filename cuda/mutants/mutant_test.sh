#!/bin/bash
# Whether a test notices a mistake: mutant_test.sh PROGRAM UNCHANGED TEST SAYS. PROGRAM
# has the mistake and UNCHANGED has not. TEST has to pass in UNCHANGED; in PROGRAM it has
# to fail, or not to end, and to say SAYS: so it is this mistake that it has noticed, and
# not something else that has gone wrong. SAYS "hangs": it does not end, and says nothing.
# What fails here is not in the report of this test: there it would count as a failure,
# though it is what has to happen.
set -uo pipefail
program=$1 unchanged=$2 test=$3 says=$4
readonly patience_s=${PATIENCE_S:-20}
log=$TEST_TMPDIR/log
unset XML_OUTPUT_FILE

# try PROGRAM SECONDS: sets status, and hung to "hangs" where there was no end.
try() {
  local start=$SECONDS
  hung=
  timeout --signal=KILL "$2" "$1" --gtest_filter="$test" >"$log" 2>&1
  status=$?
  ((status != 137 || SECONDS - start < $2)) || hung=hangs
  cat "$log"
}

bad() {
  echo "$*"
  exit 1
}

try "$unchanged" 60
((status == 0)) || bad "NO TEST: $test fails without the mistake, with status $status"
grep -qF "[       OK ] $test" "$log" || bad "NO TEST: $test did not run without the mistake"

try "$program" "$patience_s"
grep -qF "[ RUN      ] $test" "$log" || bad "$test did not run"
((status != 0)) || bad "NOT NOTICED: $test passes with the mistake"
if [[ $says == hangs ]]; then
  [[ -n $hung ]] || bad "NOT NOTICED: $test ends, with status $status"
else
  grep -qF -- "$says" "$log" ||
    bad "NOT NOTICED: $test ends with status $status, and does not say: $says"
fi
echo "noticed, with status $status"
