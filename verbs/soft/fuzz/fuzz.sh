#!/bin/bash
# Fuzzes what a peer of the software device can send, with libFuzzer and
# AddressSanitizer: what mutation_test does in short.
#
#   fuzz.sh packets|introduction|segment [LIBFUZZER OPTIONS]
#
#   fuzz.sh packets -runs=10000000 -max_len=8192
#
# Needs clang (CLANG, default clang++-14) and bazel for the seeds. Objects and
# corpus stay in BUILD_DIR (default: a folder of this name under TMPDIR), so
# that the next run goes on where this one ended.
set -euo pipefail

case "${1:-}" in
  packets) function=FuzzPackets ;;
  introduction) function=FuzzIntroduction ;;
  segment) function=FuzzSegment ;;
  *)
    sed -n '2,12s/^# \{0,1\}//p' "$0"
    exit 2
    ;;
esac
target=$1
shift

cd "$(dirname "$(readlink -f "$0")")/../../.."
clang=${CLANG:-clang++-14}
build=${BUILD_DIR:-${TMPDIR:-/tmp}/ringpipe-fuzz}
mkdir -p "$build/objects" "$build/corpus/$target"

# The library's sources, by Bazel's account.
mapfile -t sources < <(${BAZEL:-bazel} query --noshow_progress \
  'kind("source file", deps(//verbs/soft/fuzz:targets))' 2>/dev/null |
  grep '^//.*[.]cc$' | sed 's|^//||; s|:|/|')
flags=(-std=c++20 -O1 -g1 -fno-omit-frame-pointer -I. -pthread
  -D_GLIBCXX_ASSERTIONS
  -DBOOST_ASIO_NO_DEPRECATED -DBOOST_ERROR_CODE_HEADER_ONLY
  '-fsanitize=fuzzer-no-link,address,undefined'
  '-fno-sanitize-recover=undefined')
# Any newer header may be one of its.
newest_header=$(find . -name '*.h' -not -path './bazel-*' -printf '%T@ %p\n' |
  sort -n | tail -n 1 | cut -d ' ' -f 2-)
object_of() { echo "$build/objects/$(tr / _ <<<"$1").o"; }
compile() {
  local object
  object=$(object_of "$1")
  if [[ $object -nt $1 && $object -nt $newest_header && -z ${REBUILD:-} ]]; then
    return
  fi
  "$clang" "${flags[@]}" -c "$1" -o "$object"
}
running=0
objects=()  # those of sources that are gone stay out
for source in "${sources[@]}"; do
  objects+=("$(object_of "$source")")
  compile "$source" &
  if ((++running >= $(nproc))); then
    wait -n
    ((--running))
  fi
done
while ((running-- > 0)); do
  wait -n
done
"$clang" "${flags[@]}" -DRINGPIPE_FUZZ=$function \
  -c verbs/soft/fuzz/libfuzzer_entry.cc -o "$build/$target.o"
"$clang" -fsanitize=fuzzer,address,undefined -pthread "$build/$target.o" \
  "${objects[@]}" -lcrypto -ldl -o "$build/$target"

${BAZEL:-bazel} run --noshow_progress //verbs/soft/fuzz:mutation_test -- \
  --seeds="$build/seeds" >/dev/null 2>&1
# Without the search for leaks after each input, which takes most of the time.
exec "$build/$target" -artifact_prefix="$build/" -detect_leaks=0 "$@" \
  "$build/corpus/$target" "$build/seeds/$target"
