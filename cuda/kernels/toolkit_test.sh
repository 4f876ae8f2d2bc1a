#!/bin/bash
# Whether the CUDA toolkit takes reduce.cu, contraction off, and reduce.ptx: for
# the oldest and the newest architecture that it knows, and 9.0.
set -uo pipefail
source=$1 ptx=$2 nvcc=$(readlink -f "$3")

"$nvcc" -fmad=false -std=c++20 -O3 -arch=sm_90 -Werror all-warnings \
  --ptx "$source" -o "$TEST_TMPDIR/nvcc.ptx" || exit 1
diff <(grep -o '^\.visible \.entry [a-z0-9_]*' "$ptx") \
  <(grep -o '^\.visible \.entry [a-z0-9_]*' "$TEST_TMPDIR/nvcc.ptx") || {
  echo "nvcc and clang made different kernels"
  exit 1
}

mapfile -t known < <("$nvcc" --list-gpu-code)
for architecture in "${known[0]}" sm_90 "${known[-1]}"; do
  "${nvcc%/*}/ptxas" "-arch=$architecture" "$ptx" -o "$TEST_TMPDIR/code" || exit 1
done
