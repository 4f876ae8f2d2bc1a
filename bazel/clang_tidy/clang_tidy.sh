#!/bin/bash
# One action of clang_tidy.bzl: checks a source with clang-tidy, as .clang-tidy says,
# and makes the file STAMP if all is well.  Quiet unless there is something to say.
#
#   clang_tidy.sh STAMP SOURCE COMPILER_FLAG...
set -u
stamp=$1 source=$2
shift 2

if ! command -v clang-tidy >/dev/null; then
  echo "clang_tidy: no clang-tidy; run ./setup" >&2
  exit 1
fi

# Tests and benchmarks go without the static analyser, which takes ten times as long
# as the rest on the macros of their frameworks.
checks=()
[[ $source != *_@(test|benchmark).cc ]] || checks=(--checks=-clang-analyzer-*)

# What clang doesn't know, or what makes its warnings errors (GCC's are errors, which
# of clang's are is for .clang-tidy to say); and Bazel's redefinition of __DATE__ and
# its like, which clang-tidy reports.
flags=()
for flag; do
  case $flag in
    -fno-canonical-system-headers | -fno-gnu-unique | -Wno-tsan | -Werror) ;;
    -D__DATE__=* | -D__TIME__=* | -D__TIMESTAMP__=*) ;;
    *) flags+=("$flag") ;;
  esac
done

if ! output=$(clang-tidy --quiet "${checks[@]}" "$source" -- "${flags[@]}" 2>&1); then
  grep -vE '^[0-9]+ warnings? (generated|treated as)|^Suppressed|^Use -' \
    <<<"${output//"$PWD/"/}"
  exit 1
fi
: >"$stamp"
