#!/bin/bash
# install_tree.sh TAR FILE...: packs the files of libringpipe as they are
# installed:
#
#   lib/libringpipe.so.0, lib/libringpipe.so, lib/pkgconfig/ringpipe.pc,
#   lib/cmake/ringpipe/FILE.cmake, include/ringpipe/HEADER...,
#   share/doc/ringpipe/LICENSE
#
# Headers lie side by side, whatever folders of the source tree they come from,
# and include each other as <ringpipe/HEADER>.
set -euo pipefail

archive=$1
shift
umask 022 # the installed folders' modes, whoever builds
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
headers=$tree/include/ringpipe
mkdir -p "$headers" "$tree"/lib/{pkgconfig,cmake/ringpipe} "$tree/share/doc/ringpipe"

install_header() {
  local installed=$headers/${1##*/}
  if [[ -e $installed ]]; then
    echo "install_tree.sh: two headers are named ${1##*/}" >&2
    return 1
  fi
  sed -E 's|^#include "([^"]*/)?([^"/]+)"|#include <ringpipe/\2>|' "$1" >"$installed"
  chmod 644 "$installed"
}

for file in "$@"; do
  case $file in
    *.h) install_header "$file" ;;
    *.cmake) install -m 644 "$file" "$tree/lib/cmake/ringpipe/" ;;
    *.pc) install -m 644 "$file" "$tree/lib/pkgconfig/" ;;
    *libringpipe.so) install -m 755 "$file" "$tree/lib/libringpipe.so.0" ;;
    *LICENSE) install -m 644 "$file" "$tree/share/doc/ringpipe/" ;;
    *)
      echo "install_tree.sh: it is not known where to install $file" >&2
      exit 1
      ;;
  esac
done
# A header that is included but not installed would be missed at the user's.
grep -ho '^#include <ringpipe/[^>]*>' "$headers"/*.h | sort -u | while read -r _ name; do
  name=${name#<}
  if [[ ! -e $tree/include/${name%>} ]]; then
    echo "install_tree.sh: $name is included by a header, and is not installed" >&2
    exit 1
  fi
done
ln -s libringpipe.so.0 "$tree/lib/libringpipe.so"
# The prefix itself has no entry: it is not ours to change.
tar --sort=name --mtime=@0 --owner=0 --group=0 -C "$tree" -cf "$archive" \
  include lib share
