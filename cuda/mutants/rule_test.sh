#!/bin/bash
# rule_test.sh SCRIPT: what mutant_test.sh counts as notice, with stand-ins for the
# programs.
set -euo pipefail
script=$1
export PATIENCE_S=2

stand_in() {
  printf '#!/bin/bash\necho "[ RUN      ] A.Test"\n%s\n' "$2" >"$TEST_TMPDIR/$1"
  chmod +x "$TEST_TMPDIR/$1"
}

# expect STATUS SAYS WORDS: of the stand-ins "mutant" and "unchanged".
expect() {
  local status=0
  "$script" "$TEST_TMPDIR/mutant" "$TEST_TMPDIR/unchanged" A.Test "$2" >"$TEST_TMPDIR/said" 2>&1 || status=$?
  ((status == $1)) && grep -q -- "$3" "$TEST_TMPDIR/said" && return
  echo "status $status, not $1, or no \"$3\":"
  cat "$TEST_TMPDIR/said"
  exit 1
}

stand_in unchanged 'echo "[       OK ] A.Test (3 ms)"'
stand_in mutant 'echo "it is 4, not 3"; exit 1'
expect 0 'it is 4, not' '^noticed, with status 1$'
expect 1 'it is 5, not' 'does not say: it is 5, not'
expect 1 hangs 'ends, with status 1'
stand_in mutant 'kill -SEGV $$'
expect 1 'it is 4, not' 'ends with status 139'
stand_in mutant 'kill -KILL $$'
expect 1 hangs 'ends, with status 137'
stand_in mutant 'echo "it is 4, not 3"'
expect 1 'it is 4, not' 'passes with the mistake'
stand_in mutant 'echo "it is 4, not 3"; exec sleep 300'
expect 0 hangs '^noticed, with status 137$'
expect 0 'it is 4, not' '^noticed, with status 137$'
expect 1 'it is 5, not' 'does not say: it is 5, not'

stand_in mutant 'echo "it is 4, not 3"; exit 1'
stand_in unchanged 'echo "it is 4, not 3"; exit 1'
expect 1 'it is 4, not' 'fails without the mistake'
stand_in unchanged 'echo "[  SKIPPED ] A.Test"'
expect 1 'it is 4, not' 'did not run without the mistake'
