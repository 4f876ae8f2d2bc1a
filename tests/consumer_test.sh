#!/bin/bash
# A program outside this tree is built with g++, gcc and pkg-config against the
# installed library alone, and runs; the library exports its interface and
# nothing else.
set -euo pipefail

archive=$PWD/$1
cpp_source=$PWD/$2
c_source=$PWD/$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/prefix"
tar -C "$work/prefix" -xf "$archive"
cd "$work"
export PKG_CONFIG_PATH=$work/prefix/lib/pkgconfig
read -ra flags < <(pkg-config --cflags --libs ringpipe)
g++ -std=c++20 -Wall -Wextra -Werror "$cpp_source" -o cpp_consumer "${flags[@]}"
gcc -std=c11 -Wall -Wextra -Werror "$c_source" -o c_consumer "${flags[@]}"

# Runs $1 as three ranks; each must print $2.
check() {
  local pids=() rank
  for rank in 0 1 2; do
    RINGPIPE_RANK=$rank RINGPIPE_SIZE=3 RINGPIPE_ROOT="unix:@consumer-$$-$1" \
      timeout 60 "./$1" >"$1.$rank" &
    pids+=($!)
  done
  for rank in 0 1 2; do
    wait "${pids[rank]}" || { cat "$1.$rank"; exit 1; }
    [[ $(<"$1.$rank") == "$2" ]] || { echo "$1 printed:"; cat "$1.$rank"; exit 1; }
  done
}
check cpp_consumer 'ok 3'
check c_consumer 'ok 8'

# A second copy of a dependency's symbols would clash with the program's own.
foreign=$(nm --dynamic --extern-only --defined-only --demangle prefix/lib/libringpipe.so.0 |
  sed -E 's/^[0-9a-f]+ [A-Za-z] //' |
  grep -vE '^(ringpipe_|RINGPIPE_0|(typeinfo|vtable|typeinfo name|guard variable) for ringpipe::|ringpipe::)' || true)
if [[ -n $foreign ]]; then
  echo "libringpipe.so exports what is not its interface:"
  echo "$foreign" | head
  exit 1
fi
