#!/bin/bash
# Whether reduce.ptx is what clang 14 makes of reduce.cu.
set -uo pipefail
make_ptx=$1 source=$2 expected=$3
made=$TEST_TMPDIR/made.ptx

if ! command -v clang++-14 >/dev/null; then
  # Debian 12 has it, and ./setup installs it there.
  if [[ $(cat /etc/debian_version 2>/dev/null) == 12.* ]]; then
    echo "no clang++-14: run ./setup"
    exit 1
  fi
  echo "SKIPPED: no clang++-14 on this system, and other versions make other PTX"
  exit 0
fi
"$make_ptx" "$source" "$made" || exit 1
if ! cmp "$made" "$expected"; then
  diff "$made" "$expected" | head -n 20
  echo "run cuda/kernels/make_ptx cuda/kernels/reduce.cu cuda/kernels/reduce.ptx"
  exit 1
fi
