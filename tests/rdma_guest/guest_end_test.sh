#!/bin/bash
# guest_end_test.sh RDMA_GUEST: what rdma_guest says about a guest that did not get
# to its command's end, with stand-ins for QEMU, and about an archive that has not what
# it needs. Like the guests it needs their kernel, which it downloads.
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

echo "siw is built with the tools that the archive has, else for the kernel that it has"
home=$(getent passwd "$(id -u)" | cut -d: -f6)
prepared=${RDMA_GUEST_CACHE:-$home/.cache/ringpipe/rdma_guest}
export RDMA_GUEST_CACHE=$TEST_TMPDIR/cache
mkdir "$RDMA_GUEST_CACHE" && cp -r "$prepared/kernel" "$RDMA_GUEST_CACHE"
rm -f "$RDMA_GUEST_CACHE/kernel/modules/siw.ko"
version=$(<"$RDMA_GUEST_CACHE/kernel/package_version")
# An archive whose tools are newer than its kernel, and which hands out nothing.
cat >"$bin/apt-get" <<END
#!/bin/bash
echo "\$*" >>"$TEST_TMPDIR/asked"
[[ \$* == *update ]]
END
cat >"$bin/apt-cache" <<END
#!/bin/bash
case "\$*" in
  "madison linux-kbuild-6.1") echo "linux-kbuild-6.1 | 6.1.999-1 | an archive" ;;
  "madison linux-source-6.1") echo "linux-source-6.1 | $version | an archive" ;;
  "depends linux-image-amd64") echo "  Depends: linux-image-6.1.0-999-amd64" ;;
esac
END
chmod +x "$bin"/apt-*
expect 123 "cannot download the kernel" 'exit 0' --device siw
for request in "linux-kbuild-6.1 linux-source-6.1=$version" update "download linux-image-6.1.0-999-amd64"; do
  grep -q -- "$request$" "$TEST_TMPDIR/asked" || {
    echo "not asked for: $request"
    cat "$TEST_TMPDIR/asked"
    exit 1
  }
done
[[ -s $RDMA_GUEST_CACHE/kernel/complete ]] || { echo "the kernel is lost"; exit 1; }
