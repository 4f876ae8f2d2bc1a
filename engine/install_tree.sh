#!/bin/bash
# install_tree.sh TAR FILE...: packs the files of libringpipe as they are
# installed:
#
#   lib/libringpipe.so.0, lib/libringpipe.so, lib/pkgconfig/ringpipe.pc,
#   include/ENGINE_HEADER..., with the folders of the source tree
set -euo pipefail

archive=$1
shift
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
mkdir -p "$tree/lib/pkgconfig" "$tree/include"
for file in "$@"; do
  case $file in
    *.h) install -D -m 644 "$file" "$tree/include/$file" ;;
    *.pc) install -m 644 "$file" "$tree/lib/pkgconfig/" ;;
    *libringpipe.so) install -m 755 "$file" "$tree/lib/libringpipe.so.0" ;;
  esac
done
ln -s libringpipe.so.0 "$tree/lib/libringpipe.so"
tar --sort=name --mtime=@0 --owner=0 --group=0 -C "$tree" -cf "$archive" .
