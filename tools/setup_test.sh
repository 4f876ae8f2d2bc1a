#!/bin/bash
# Tests of ./setup with stand-ins for dpkg-query, apt-get and sudo: what it asks
# of them, and what it says when they fail.
set -euo pipefail

setup=$PWD/$1
bin=$TEST_TMPDIR/bin
mkdir -p "$bin"
export INSTALLED=$TEST_TMPDIR/installed CALLS=$TEST_TMPDIR/calls
export PATH=$bin:/usr/bin:/bin

# Knows the packages that are named in $INSTALLED.
cat >"$bin/dpkg-query" <<'EOF'
#!/bin/bash
status=0
for package in "${@:3}"; do
  if grep -qx "$package" "$INSTALLED"; then
    printf '%s/installed ' "$package"
  else
    status=1
  fi
done
exit "$status"
EOF
# Installs what it is asked to, unless it is to fail.
cat >"$bin/apt-get" <<'EOF'
#!/bin/bash
while [[ $1 == -* ]]; do
  [[ $1 != -o ]] || shift
  shift
done
echo "$*" >>"$CALLS"
[[ $1 != "${FAIL_AT:-}" ]] || exit 100
[[ $1 != install ]] || printf '%s\n' "${@:2}" | grep -v '^-' >>"$INSTALLED"
EOF
printf '#!/bin/bash\n"$@"\n' >"$bin/sudo"
chmod +x "$bin"/*

fail() {
  echo "FAILED: $*"
  exit 1
}

# Where all but two are there, it installs those two.
: >"$CALLS"
: >"$INSTALLED"
"$setup" >/dev/null || fail "a bare machine"
grep -vxE 'shellcheck|g\+\+' "$INSTALLED" >"$INSTALLED.fewer"
cp "$INSTALLED.fewer" "$INSTALLED"
: >"$CALLS"
"$setup" >/dev/null || fail "two missing"
diff "$CALLS" - <<<"update
install -y --no-install-recommends g++ shellcheck" || fail "two missing: wrong calls"

# Where nothing is missing, it leaves apt-get, hence the network, alone.
: >"$CALLS"
"$setup" | grep -q 'nothing to do' || fail "a second run"
[[ ! -s $CALLS ]] || fail "a second run calls apt-get: $(<"$CALLS")"

# What went wrong, and what to do.
for at in update install; do
  cp "$INSTALLED.fewer" "$INSTALLED"
  ! FAIL_AT=$at "$setup" >"$TEST_TMPDIR/out" 2>&1 || fail "apt-get $at failed and setup did not"
  grep -q "^setup: apt-get $at failed" "$TEST_TMPDIR/out" || fail "no word of apt-get $at"
done
