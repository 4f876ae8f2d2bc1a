#!/bin/bash
# consumer_test.sh TAR README LICENSE C_SOURCE VERSION_SCRIPT
#
# What README.md says under "Use it in a program", run as it stands there: the
# library is installed, the sample is built against it and nothing else of this
# tree, and runs. The same for a program in C, and for both by CMake. The library
# exports its interface and nothing else, and each function of it in C under the
# version that is promised.
set -euo pipefail

archive=$PWD/$1
readme=$PWD/$2
license=$PWD/$3
c_source=$PWD/$4
version_script=$PWD/$5
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
  echo "$*" >&2
  exit 1
}

expect() {
  [[ $2 == "$3" ]] || fail "$1 printed"$'\n'"$2"$'\n'"instead of"$'\n'"$3"
}

section=$(sed -n '/^## Use it in a program$/,/^## /p' "$readme")
# shellcheck disable=SC2016 # Markdown's backquotes
sample=$(sed -n '/^```cpp$/,/^```$/p' <<<"$section" | sed '/^```/d')
# shellcheck disable=SC2016
commands=$(sed '/^```cpp$/,/^```$/d' <<<"$section" | sed -n 's/^    //p')
[[ -n $sample && -n $commands ]] || fail "README.md has no sample, or no commands"

# Runs README's commands, with $1 for PREFIX, in a clone that has been built.
play() {
  mkdir -p "$work/clone/bazel-bin/engine"
  cp "$archive" "$work/clone/bazel-bin/engine/"
  cd "$work/clone"
  echo "$sample" >sum.cc
  # shellcheck disable=SC2317 # the commands call it
  bazel() { [[ $* == 'build //engine:install' ]]; }
  export -f bazel
  timeout 100 bash -euo pipefail -c "${commands//PREFIX/$1}"
}

# Everybody may read what root unpacks, whatever the umask of who has packed it.
expect "The modes and owners in the archive" \
  "$(tar --numeric-owner -tvf "$archive" | awk '{print $1, $2}' | sort -u)" \
  "$(printf '%s 0/0\n' -rw-r--r-- -rwxr-xr-x drwxr-xr-x lrwxrwxrwx)"

# Folders that are there already stay as they are.
mkdir -p "$work/clone/here/lib"
chmod 751 "$work/clone/here"
chmod 2775 "$work/clone/here/lib"
for prefix in ./here "$work/with/an/absolute/path"; do
  expect "README.md's sample" "$(play "$prefix")" $'ok 2\nok 2'
  cd "$work/clone"
  status=0
  printed=$(RINGPIPE_TIMEOUT_MS=abc ./a.out 2>&1) || status=$?
  expect "The sample with a bad variable" "$status $printed" \
    "1 invalid argument: RINGPIPE_TIMEOUT_MS=abc: use a whole number from 1 to 86400000, or -1 for no deadline"
  # From another folder it finds the library too.
  cd /
  printed=$(RINGPIPE_RANK=0 RINGPIPE_SIZE=1 RINGPIPE_ROOT="unix:@consumer-$$" \
    "$work/clone/a.out" 2>&1) || status=$?
  expect "The sample alone" "$printed" "ok 1"
done

cd "$work/clone"
expect "The tree" "$(find here -mindepth 1 -maxdepth 2 -printf '%P\n' | sort)" \
  "$(printf '%s\n' include include/ringpipe lib lib/cmake lib/libringpipe.so \
    lib/libringpipe.so.0 lib/pkgconfig share share/doc)"
expect "The modes of folders that were there" "$(stat -c %a here here/lib)" \
  $'751\n2775'
cmp "$license" here/share/doc/ringpipe/LICENSE

PKG_CONFIG_PATH=$PWD/here/lib/pkgconfig
export PKG_CONFIG_PATH
read -ra flags < <(pkg-config --cflags --libs ringpipe)
gcc -std=c11 -Wall -Wextra -Werror "$c_source" -o c_consumer "${flags[@]}"
g++ -std=c++20 -Wall -Wextra -Werror sum.cc -o cpp_consumer "${flags[@]}"

# Runs $1 as three ranks; each must print $2.
check() {
  local pids=() rank
  for rank in 0 1 2; do
    RINGPIPE_RANK=$rank RINGPIPE_SIZE=3 RINGPIPE_ROOT="unix:@consumer-$$-$1" \
      timeout 60 "./$1" >"$1.$rank" &
    pids+=($!)
  done
  for rank in 0 1 2; do
    wait "${pids[rank]}" || fail "$1 printed: $(<"$1.$rank")"
    expect "$1" "$(<"$1.$rank")" "$2"
  done
}
check cpp_consumer 'ok 3'
check c_consumer 'ok 8'

# The header, as strictly as C goes.
echo '#include <ringpipe/ringpipe.h>' |
  gcc -std=c11 -pedantic -Wall -Wextra -Werror -fsyntax-only -x c -Ihere/include -

# CMake finds the library too, in a tree that has been moved.
cp -a here "moved here"
mkdir cmake_build
cp "$c_source" consumer.c
cat >CMakeLists.txt <<'END'
cmake_minimum_required(VERSION 3.18)
project(consumer C CXX)
find_package(ringpipe 0.1 REQUIRED)
message(STATUS "found ${ringpipe_VERSION}")
find_package(ringpipe 0.1 REQUIRED) # twice does no harm
add_executable(cmake_c_consumer consumer.c)
target_link_libraries(cmake_c_consumer ringpipe::ringpipe)
add_executable(cmake_cpp_consumer sum.cc)
target_compile_features(cmake_cpp_consumer PRIVATE cxx_std_20)
target_link_libraries(cmake_cpp_consumer ringpipe::ringpipe)
END
cmake -S . -B cmake_build -DCMAKE_PREFIX_PATH="$PWD/moved here" >cmake.log 2>&1 ||
  fail "cmake: $(<cmake.log)"
grep -q "found $(pkg-config --modversion ringpipe)\$" cmake.log ||
  fail "CMake and pkg-config find different versions: $(<cmake.log)"
cmake --build cmake_build >cmake.log 2>&1 || fail "cmake --build: $(<cmake.log)"
cp cmake_build/cmake_c_consumer cmake_build/cmake_cpp_consumer .
check cmake_c_consumer 'ok 8'
check cmake_cpp_consumer 'ok 3'
[[ $(ldd cmake_c_consumer) == *"$PWD/moved here/lib/libringpipe.so.0"* ]] ||
  fail "the program that CMake has built does not use the moved library"
sed -i 's/ringpipe 0.1 /ringpipe 99 /' CMakeLists.txt
if cmake -S . -B cmake_other -DCMAKE_PREFIX_PATH="$PWD/moved here" >cmake.log 2>&1; then
  fail "CMake takes this library for version 99"
fi

# The functions of the header, those that the version script lists, and those
# that are exported under the version that is promised, are the same.
declared=$(tr '\n' ' ' <here/include/ringpipe/ringpipe.h |
  grep -oE 'RINGPIPE_API [^;(]*[ *]ringpipe_[a-z_]+\(' | grep -oE 'ringpipe_[a-z_]+\($' |
  tr -d '(' | sort -u)
expect "The version script" \
  "$(sed -n 's/^ *\(ringpipe_[a-z_]*\);$/\1/p' "$version_script" | sort)" "$declared"
expect "libringpipe.so, of RINGPIPE_0," \
  "$(nm --dynamic --defined-only --with-symbol-versions here/lib/libringpipe.so.0 |
    sed -n 's/^[0-9a-f]* T \(.*\)@@RINGPIPE_0$/\1/p' | sort)" "$declared"

# A second copy of a dependency's symbols would clash with the program's own.
foreign=$(nm --dynamic --extern-only --defined-only --demangle here/lib/libringpipe.so.0 |
  sed -E 's/^[0-9a-f]+ [A-Za-z] //' |
  grep -vE '^(ringpipe_|RINGPIPE_0|RINGPIPE_CXX|(typeinfo|vtable|typeinfo name|guard variable) for ringpipe::|ringpipe::)' || true)
[[ -z $foreign ]] || fail "libringpipe.so exports what is not its interface:"$'\n'"$(head <<<"$foreign")"
