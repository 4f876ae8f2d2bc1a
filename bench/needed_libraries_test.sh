#!/bin/bash
# needed_libraries_test.sh FILE...: a program or library that is copied to
# another machine needs there what every Debian has and nothing else: glibc,
# and the run time of GCC. bench/README.md says so.
set -euo pipefail

allowed='^(ld-linux-x86-64\.so\.2|lib(c|m|dl|rt|pthread)\.so\.[0-9]+|libstdc\+\+\.so\.6|libgcc_s\.so\.1)$'

failed=0
for file; do
  needed=$(readelf -dW "$file" | sed -nE 's/.*\(NEEDED\).*\[(.*)\]$/\1/p')
  [[ $needed == *libc.so.6* ]] || { echo "$file: readelf found: $needed"; failed=1; }
  while read -r library; do
    [[ $library =~ $allowed ]] || { echo "$file needs $library"; failed=1; }
  done <<<"$needed"
done
exit "$failed"
