#!/bin/bash
# guest_end_test.sh RDMA_GUEST: what rdma_guest says about a guest that did not get
# to its command's end, with stand-ins for QEMU. Like the guests it needs their
# kernel, which it downloads.
set -euo pipefail

rdma_guest=$PWD/$1
bin=$TEST_TMPDIR/bin
mkdir -p "$bin"
export PATH=$bin:$PATH

# expect STATUS MESSAGE QEMU [OPTION...]: QEMU is a script, in place of the real one.
expect() {
  local expected=$1 message=$2 status=0 text
  printf '#!/bin/bash\n%s\n' "$3" >"$bin/qemu-system-x86_64"
  chmod +x "$bin/qemu-system-x86_64"
  shift 3
  text=$("$rdma_guest" "$@" -- true 2>&1) || status=$?
  if ((status != expected)) || [[ $text != *"$message"* ]]; then
    echo "exit status $status, not $expected with \"$message\": $text"
    exit 1
  fi
}

status=0
text=$("$rdma_guest" --prepare 2>&1) || status=$?
if ((status == 123)) && [[ ${CI:-false} == @(false|0) ]]; then
  echo "SKIPPED: no guest: $text"
  exit
fi
((status == 0)) || { echo "--prepare: exit status $status: $text"; exit 1; }

# As the real one it ends with 0 after SIGTERM.
hanging='trap "exit 0" TERM; sleep 100 & wait'

echo "an early panic, after which QEMU ends with 0, is not the end of its time"
expect 125 "the guest ended before the command did" 'exit 0'
echo "a guest that does not start its command"
expect 125 "did not start the command within 1 s" "$hanging" --boot-timeout 1
echo "a guest that is out of time"
expect 124 "out of time after 1 s" "$hanging" --timeout 1
