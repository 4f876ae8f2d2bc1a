#!/bin/bash
# Runs a program of RDMA verbs on the software device: see usage.
set -euo pipefail

usage() {
  cat <<'END'
usage: softverbs [OPTION...] PROGRAM [ARGUMENT...]

Runs PROGRAM, unmodified, on ringpipe's software RDMA device, soft0: programs
that are linked against libibverbs, or load it, and their children.

  --link-layer=ethernet    soft0 is a RoCE v2 device: addressed by GID (default)
  --link-layer=infiniband  soft0 is an InfiniBand device: it has a LID
  --print-environment      print the variables that would be set, as a shell
                           reads them, and run nothing
  --help                   this text

For example, in two terminals:

  softverbs ibv_rc_pingpong -g 0
  softverbs ibv_rc_pingpong -g 0 localhost

The exit status is PROGRAM's; 125: softverbs could not start it.
END
}

die() {
  echo "softverbs: $*" >&2
  exit 125
}

# Beside this script where it was copied to a directory with the libraries, in
# Bazel's runfiles otherwise.
find_libraries() {
  local self root
  self=$(readlink -f "${BASH_SOURCE[0]}")
  for root in "${RUNFILES_DIR:-}" "${BASH_SOURCE[0]}.runfiles" \
    "${BASH_SOURCE[0]%.sh}.runfiles" "${self%.sh}.runfiles"; do
    if [[ -n $root && -d $root/ringpipe/verbs/soft ]]; then
      root=$(cd "$root/ringpipe/verbs/soft" && pwd -P)
      libraries=$root/libibverbs/lib
      preload=$root/softverbs/device_files.so
      return
    fi
  done
  libraries=${self%/*}
  preload=${self%/*}/device_files.so
}

variables=()
print_only=false
while (($# > 0)); do
  case $1 in
    --link-layer=ethernet | --link-layer=infiniband)
      variables+=("RINGPIPE_SOFT_LINK_LAYER=${1#*=}")
      ;;
    --link-layer=*) die "--link-layer is ethernet or infiniband, not '${1#*=}'" ;;
    --print-environment) print_only=true ;;
    --help | -h)
      usage
      exit 0
      ;;
    --)
      shift
      break
      ;;
    -*) die "unknown option '$1'; see softverbs --help" ;;
    *) break ;;
  esac
  shift
done
if (($# == 0)) && ! $print_only; then
  usage >&2
  exit 125
fi

find_libraries
[[ -e $libraries/libibverbs.so.1 && -e $preload ]] ||
  die "libibverbs.so.1 and device_files.so are not where they should be: \
bazel build //verbs/soft:softverbs"
variables+=(
  "LD_LIBRARY_PATH=$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
  # Answers questions about the device's file, which UCX asks.
  "LD_PRELOAD=$preload${LD_PRELOAD:+:$LD_PRELOAD}"
)

if $print_only; then
  printf 'export %q\n' "${variables[@]}"
  exit 0
fi
# "bazel run" starts programs in the tree of runfiles.
if [[ -n ${BUILD_WORKING_DIRECTORY:-} ]]; then
  cd "$BUILD_WORKING_DIRECTORY"
fi
# exec, so that signals and the exit status are the program's own.
export "${variables[@]}"
unset RUNFILES_DIR JAVA_RUNFILES RUNFILES_MANIFEST_FILE
type -P -- "$1" >/dev/null || die "no program '$1'"
# By the name that was given: mpirun looks at it.
exec -- "$@"
