#!/bin/bash
# questions_test.sh PROGRAM
set -euo pipefail
"$1" --same

echo "With fewer queues, fewer streams go on:"
if FAKE_CUDA_QUEUES=2 "$1" --same | tee "$TEST_TMPDIR/answers"; then
  echo "nothing was noticed"
  exit 1
fi
[[ $(tail -n 1 "$TEST_TMPDIR/answers") == "The fake driver is wrong about 1 of "* ]]

echo "Without a GPU:"
status=0
FAKE_CUDA_DEVICES=0 "$1" || status=$?
((status == 77))
