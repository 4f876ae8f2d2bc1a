#!/bin/bash
# The softverbs command: what the program that it runs gets to see.
set -euo pipefail

softverbs=$PWD/$1

fail() {
  echo "FAILED: $*" >&2
  exit 1
}

# The program is the process that was started: its signals, its exit status.
status=0
# shellcheck disable=SC2016  # for the inner shell
"$softverbs" bash -c 'kill -TERM $$' || status=$?
((status == 143)) || fail "a signal became exit status $status"
status=0
"$softverbs" bash -c 'exit 42' || status=$?
((status == 42)) || fail "exit status 42 became $status"

[[ $(echo text | "$softverbs" cat) == text ]] || fail "stdin was lost"
[[ $(BUILD_WORKING_DIRECTORY=/usr "$softverbs" pwd) == /usr ]] ||
  fail "the program does not run where bazel run was called"
[[ $("$softverbs" printf '%s|' 'a b' '' '*') == 'a b||*|' ]] ||
  fail "arguments were changed"

# The libraries come before others, which stay.
# shellcheck disable=SC2016
[[ $(LD_LIBRARY_PATH=/nowhere "$softverbs" printenv LD_LIBRARY_PATH) == \
  */lib:/nowhere ]] || fail "LD_LIBRARY_PATH"
ldd=$("$softverbs" ldd "$(type -P ibv_devices)")
[[ $ldd == *"/libibverbs/lib/libibverbs.so.1 "* ]] ||
  fail "another libibverbs is loaded: $ldd"

[[ $("$softverbs" --link-layer=infiniband printenv \
  RINGPIPE_SOFT_LINK_LAYER) == infiniband ]] || fail "--link-layer"
status=0
"$softverbs" --link-layer=token-ring true 2>/dev/null || status=$?
((status == 125)) || fail "a link layer that does not exist is accepted"
status=0
"$softverbs" no-such-program 2>/dev/null || status=$?
((status == 125)) || fail "a program that does not exist: $status"

# The device's file is there, a character device; others are as they were.
"$softverbs" python3 - <<'END' || fail "the device's file"
import os, stat
path = '/dev/infiniband/soft0'
assert stat.S_ISCHR(os.stat(path).st_mode)
assert os.access(path, os.R_OK | os.W_OK)
os.close(os.open(path, os.O_RDWR))
assert not os.path.exists('/dev/infiniband/soft1')
assert stat.S_ISDIR(os.stat('/dev').st_mode)
name = os.path.join(os.environ['TEST_TMPDIR'], 'new')
os.close(os.open(name, os.O_WRONLY | os.O_CREAT, 0o640))
assert stat.S_IMODE(os.stat(name).st_mode) & 0o600 == 0o600
END
for link_layer in ethernet infiniband; do
  type=$("$softverbs" --link-layer=$link_layer \
    python3 -c 'print(open("/sys/class/infiniband/soft0/ports/1/gid_attrs/types/0").read(), end="")')
  case $link_layer:$type in
    'ethernet:RoCE v2' | 'infiniband:IB/RoCE v1') ;;
    *) fail "the type of a GID on $link_layer is '$type'" ;;
  esac
done
echo "passed"
