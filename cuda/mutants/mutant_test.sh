#!/bin/bash
# Whether a test notices a mistake: mutant_test.sh PROGRAM TEST. A test that hangs
# has noticed it too. What fails here is not in the report of this test: there it would
# count as a failure, though it is what has to happen.
set -uo pipefail
program=$1 test=$2
log=$TEST_TMPDIR/log
unset XML_OUTPUT_FILE

timeout --signal=KILL 20 "$program" --gtest_filter="$test" >"$log" 2>&1
status=$?
cat "$log"
grep -qF "[ RUN      ] $test" "$log" || {
  echo "$test did not run"
  exit 1
}
if ((status == 0)); then
  echo "NOT NOTICED: $test passes with the mistake"
  exit 1
fi
echo "noticed, with status $status"
