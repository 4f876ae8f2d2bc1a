#!/bin/bash
# Ranks that real launchers start find each other without any variable of
# ringpipe's, also behind a shell and when two jobs run at once.
set -u
readonly program="$PWD/$1"
readonly out="$TEST_TMPDIR"
failures=0

# Open MPI refuses root without these, and the sandbox may be root; /tmp: its
# sockets' paths must be short.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export HOME="$out" TMPDIR=/tmp

# launch LAUNCHER COMMAND...: four ranks.
launch() {
  local launcher="$1"
  shift
  if [[ "$launcher" == openmpi ]]; then
    timeout 40 mpirun.openmpi --oversubscribe -n 4 "$@"
  else
    timeout 40 mpirun.mpich -n 4 "$@"
  fi
}

# expect_four FILE WHAT: one line of each rank.
expect_four() {
  local rank
  for rank in 0 1 2 3; do
    if [[ "$(grep -c "^joined .* $rank/4\$" "$1")" != 1 ]]; then
      echo "FAILED: $2: rank $rank"
      cat "$1"
      failures=$((failures + 1))
      return
    fi
  done
  echo "passed: $2"
}

for launcher in openmpi mpich; do
  if ! command -v "mpirun.$launcher" > /dev/null; then
    echo "SKIPPED: mpirun.$launcher is not installed"
    continue
  fi
  launch "$launcher" "$program" > "$out/plain" 2>&1
  expect_four "$out/plain" "$launcher: four ranks join"

  # The shell has to stay: "true" comes after the program.
  launch "$launcher" sh -c "$program && true" > "$out/shell" 2>&1
  expect_four "$out/shell" "$launcher: four ranks join behind shells"

  launch "$launcher" "$program" > "$out/first" 2>&1 &
  launch "$launcher" "$program" > "$out/second" 2>&1 &
  wait
  expect_four "$out/first" "$launcher: the first of two jobs at once"
  expect_four "$out/second" "$launcher: the second of two jobs at once"
done

exit $((failures > 0))
