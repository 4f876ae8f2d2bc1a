#!/bin/bash
# Tests of ./setup with stand-ins for dpkg-query, apt-get and sudo: what it asks
# of them, and what it says when they fail.
set -euo pipefail

setup=$PWD/$1
bin=$TEST_TMPDIR/bin
mkdir -p "$bin"
export SETUP_POLICY=$TEST_TMPDIR/policy-rc.d
export INSTALLED=$TEST_TMPDIR/installed CALLS=$TEST_TMPDIR/calls
export PATH=$bin:/usr/bin:/bin

# Has the packages in $INSTALLED installed, a line each with what it provides, in
# dpkg-query's form: "name, provided (= 1)"; and one that was removed.
cat >"$bin/dpkg-query" <<'EOF'
#!/bin/bash
sed 's/^/installed /' "$INSTALLED"
echo "config-files removed, librdmacm1"
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
[[ $1 != install || ! -x $SETUP_POLICY ]] ||
  for service in slurmd.service munge ssh; do
    "$SETUP_POLICY" "$service" start || echo "$service may not start: $?" >>"$CALLS"
  done
EOF
# shellcheck disable=SC2016 # its own variables
printf '#!/bin/bash\necho "update-rc.d $*" >>"$CALLS"\n' >"$bin/update-rc.d"
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

# Slurm is for a test that starts its own: its services neither start when they are
# installed nor at the next boot, and others do.
grep -vxE 'munge|slurmd' "$INSTALLED" >"$INSTALLED.no_slurm"
cp "$INSTALLED.no_slurm" "$INSTALLED"
: >"$CALLS"
"$setup" >/dev/null || fail "no Slurm"
diff "$CALLS" - <<<"update
install -y --no-install-recommends munge slurmd
slurmd.service may not start: 101
munge may not start: 101
update-rc.d munge disable
update-rc.d slurmd disable" || fail "Slurm's services: wrong calls"
[[ ! -e $SETUP_POLICY ]] || fail "the policy against services is still there"
# Nor is it there after a failure, and one of somebody else's stays as it is.
cp "$INSTALLED.no_slurm" "$INSTALLED"
! FAIL_AT=install "$setup" >/dev/null 2>&1 || fail "apt-get install failed and setup did not"
[[ ! -e $SETUP_POLICY ]] || fail "the policy against services is still there after a failure"
echo "another's" >"$SETUP_POLICY"
"$setup" >/dev/null || fail "with a policy of somebody else's"
[[ $(<"$SETUP_POLICY") == "another's" ]] || fail "somebody else's policy is gone"
rm "$SETUP_POLICY"

# Where nothing is missing, it leaves apt-get, hence the network, alone.
: >"$CALLS"
"$setup" >"$TEST_TMPDIR/out"
grep -q 'nothing to do' "$TEST_TMPDIR/out" || fail "a second run"
[[ ! -s $CALLS ]] || fail "a second run calls apt-get: $(<"$CALLS")"

# A package that provides another's name stands for it, as Debian 13's do.
{
  grep -vx librdmacm1 "$INSTALLED"
  echo "librdmacm1t64, librdmacm1 (= 56.1-1), other (= 1)"
} >"$INSTALLED.renamed"
cp "$INSTALLED.renamed" "$INSTALLED"
"$setup" >"$TEST_TMPDIR/out"
grep -q 'nothing to do' "$TEST_TMPDIR/out" || fail "what a package provides is not seen"

# What went wrong, and what to do.
for at in update install; do
  cp "$INSTALLED.fewer" "$INSTALLED"
  ! FAIL_AT=$at "$setup" >"$TEST_TMPDIR/out" 2>&1 || fail "apt-get $at failed and setup did not"
  grep -q "^setup: apt-get $at failed" "$TEST_TMPDIR/out" || fail "no word of apt-get $at"
done

# --build-only: what building needs, and no tests.
: >"$CALLS"
: >"$INSTALLED"
"$setup" --build-only >/dev/null || fail "--build-only on a bare machine"
for package in g++ librdmacm-dev; do
  grep -qx -e "$package" "$INSTALLED" || fail "--build-only leaves out $package"
done
for package in qemu-system-x86 clang-tidy slurmd munge mpich openmpi-bin googletest; do
  ! grep -qx "$package" "$INSTALLED" || fail "--build-only installs $package"
done

# --list installs nothing.
: >"$CALLS"
"$setup" --list >"$TEST_TMPDIR/out"
grep -qx googletest "$TEST_TMPDIR/out" || fail "--list"
[[ ! -s $CALLS ]] || fail "--list calls apt-get"

status=0
"$setup" --built-only >"$TEST_TMPDIR/out" 2>&1 || status=$?
((status == 2)) || fail "an unknown option: exit status $status"
grep -q 'unknown option --built-only' "$TEST_TMPDIR/out" || fail "an unknown option: not named"

# Neither root nor sudo: the whole line for root to run, which works as it stands.
cp "$INSTALLED.fewer" "$INSTALLED"
rm "$bin/sudo"
for program in bash cat env grep sed; do ln -s "$(command -v $program)" "$bin"; done
ordinary_user=()
if ((EUID == 0)); then
  ordinary_user=("$(command -v unshare)" --user --map-user=1000)
  "${ordinary_user[@]}" true ||
    fail "root cannot become another user here: the machine, or its container, refuses \
user namespaces (unshare --user). Allow them, or run this as an ordinary user"
fi
! PATH=$bin "${ordinary_user[@]}" "$setup" >"$TEST_TMPDIR/out" 2>&1 ||
  fail "an ordinary user without sudo, and setup did not fail"
grep -q '^  apt-get update && apt-get install -y --no-install-recommends g++ shellcheck$' \
  "$TEST_TMPDIR/out" || fail "no line to run as root: $(<"$TEST_TMPDIR/out")"
