#!/bin/bash
# gpu_suite_test.sh SCRIPT COLLECTIVES BANDWIDTH PYTHON_TEST DRIVER: what
# bench/gpu_suite does with the outcome of its programs, with stand-ins for them; the
# programs themselves, on host memory; and Python's test, on the fake driver.
set -euo pipefail

script=$1
collectives=$2
bandwidth=$3
python_test=$4
driver=$5
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# A pack of stand-ins: a GPU is there, and every program passes.
new_pack() {
  rm -rf "$work/pack"
  mkdir -p "$work/pack/programs"
  cp "$script" "$work/pack/run"
  local program
  for program in cuda_memory_test host_accelerator_test thread_accelerator_test \
    cuda_accelerator_test cuda_contexts_test; do
    stand_in "$program" 'echo "[  PASSED  ] 3 tests."'
  done
  mkdir "$work/pack/programs/python"
  stand_in python/device_arrays_test.py 'print("OK")'
  # shellcheck disable=SC2016  # for the stand-in
  stand_in gpu_collectives '[[ $RINGPIPE_DEVICE == soft && -z ${RINGPIPE_DEPTH:-} ]] || exit 3
    if [[ $* == *--time* ]]; then echo "| $2 | 268435456 | 10 | 9 | 11 | 5 | 99 |"
    else echo "| allreduce | rails | $2 | 360 | right |"; fi'
  stand_in questions 'echo "questions: loading the kernels took 0.7 s"
    printf "| question | the fake driver | this one |\n| --- | --- | --- |\n| Is it so? | yes | no |\n"
    echo "The fake driver is wrong about 1 of 1."'
  # shellcheck disable=SC2016
  stand_in gpu_bandwidth '[[ ${1:-} != --device ]] || { echo "Fake GPU 9000"; exit; }
    echo "| copy to the host | 131072 | 20.5 |"'
  echo v1.2-3 >"$work/pack/programs/built_from"
}

stand_in() {
  printf '#!/bin/bash\n%s\n' "$2" >"$work/pack/programs/$1"
  chmod +x "$work/pack/programs/$1"
}

# expect STATUS ARGUMENT...: runs the pack; its output is in $work/log, its
# tables are in $work/results.md.
expect() {
  local expected=$1 status=0
  shift
  rm -f "$work/results.md"
  RINGPIPE_DEPTH=2 "$work/pack/run" --output "$work/results.md" "$@" >"$work/log" 2>&1 || status=$?
  ((status == expected)) || bad "exit status $status, not $expected"
}

bad() {
  echo "$*; the output was:"
  cat "$work/log"
  [[ ! -e $work/results.md ]] || cat "$work/results.md"
  exit 1
}

has() { grep -qE -- "$1" "$work/results.md" || bad "no \"$1\" in the results"; }

echo "everything passes"
new_pack
expect 0
has '^\| Is it so\? \| yes \| no \|'
has '^Loading the kernels took 0\.7 s'
has '^The fake driver is wrong about 1 of 1\.'
has "^Measured on $(date -u +%Y)-[0-9-]+ [0-9:]+ UTC"
has "^\| $(date -u +%Y)-[0-9-]+ \| Fake GPU 9000 \| .* \| v1.2-3 \| "
has '^\| cuda_accelerator_test \| passed \| [0-9]+ \|$'
has '^\| device_arrays_test \| passed \| [0-9]+ \|$'
for ranks in 2 4 8; do
  has "^\| allreduce \| rails \| $ranks \| 360 \| right \|$"
  has "^\| $ranks \| 268435456 \| 10 "
done
has '^\| copy to the host \| 131072 \| 20.5 \|$'
has 'cut because of time: nothing'

echo "a program that fails is a failure, and the others run"
new_pack
stand_in thread_accelerator_test 'echo broken; exit 5'
expect 1
has '^\| thread_accelerator_test \| FAILED, exit status 5 '
has '^\| copy to the host '
grep -q broken "$work/log" || bad "the failed program's output is not shown"

echo "tests on the GPU that were skipped are a failure"
new_pack
stand_in cuda_accelerator_test 'echo "[  SKIPPED ] CudaDeviceTest.CopiesInWithinAndOut (0 ms)"'
expect 1
has '^\| cuda_accelerator_test \| FAILED, tests were skipped '

echo "a test in Python that fails is a failure"
new_pack
stand_in python/device_arrays_test.py 'raise SystemExit(5)'
expect 1
has '^\| device_arrays_test \| FAILED, exit status 5 '

echo "without Python or numpy the test in Python is not run, and that is no failure"
new_pack
stand_in python3 'echo "ModuleNotFoundError: no numpy" >&2; exit 1'
PATH=$work/pack/programs:$PATH expect 0
has '^\| device_arrays_test \| not run: ModuleNotFoundError: no numpy \| 0 \|$'
stand_in python3 'exit 1'
PATH=$work/pack/programs:$PATH expect 0
has '^\| device_arrays_test \| not run: it needs Python 3\.11 and numpy 1\.24 '

echo "the test in Python, on the fake driver"
new_pack
rm "$work/pack/programs/python/device_arrays_test.py"
tar -C "$work/pack/programs/python" -xf "$python_test"
LD_LIBRARY_PATH=$(dirname "$driver") expect 0
has '^\| device_arrays_test \| passed '
rm "$work/pack/programs/python/ringpipe/libringpipe.so.0"
LD_LIBRARY_PATH=$(dirname "$driver") expect 1
has '^\| device_arrays_test \| FAILED, '

echo "a program that hangs is cut, and what there is no time for is named"
new_pack
stand_in questions 'sleep 300' # the first
SECONDS=0
expect 1 --seconds 6
((SECONDS < 60)) || bad "took $SECONDS s"
has '^- questions: cut after [1-6] s$'
has '^- allreduce_256MiB_8: not begun'

echo "a program that is killed before its time is no program that was cut"
new_pack
# shellcheck disable=SC2016  # for the stand-in
stand_in host_accelerator_test 'kill -KILL $$'
expect 1
has '^\| host_accelerator_test \| FAILED, exit status 137 '
has 'cut because of time: nothing'

echo "a signal ends it at once, with what it runs, and leaves no results"
new_pack
mkfifo "$work/running"
stand_in cuda_memory_test "echo begun; exec sleep 300 >$work/running"
# At once means: also while the suite has only just begun the program.
for _ in 1 2 3 4 5; do
  rm -f "$work/results.md"
  "$work/pack/run" --output "$work/results.md" >"$work/log" 2>&1 &
  suite=$!
  exec 3<"$work/running" # opens when the program does
  SECONDS=0
  kill -TERM "$suite"
  status=0
  wait "$suite" || status=$?
  ((status == 143)) || bad "exit status $status, not 143"
  ((SECONDS < 30)) || bad "took $SECONDS s to end"
  # The end of the program: nobody has the FIFO open any more.
  read -r -t 30 -u 3 && bad "the program wrote something"
  ((SECONDS < 30)) || bad "the program goes on"
  exec 3<&-
  [[ ! -e $work/results.md ]] || bad "results of an interrupted run"
done

echo "without a GPU nothing is written"
new_pack
stand_in gpu_bandwidth 'echo "no GPU: none here"; exit 77'
expect 77
[[ ! -e $work/results.md ]] || bad "results without a GPU"
grep -q 'stopped at the device check: no GPU: none here' "$work/log" || bad "no reason"
expect 0 --allow-no-gpu
[[ ! -e $work/results.md ]] || bad "results without a GPU"

echo "a device check that ends in another way is no lack of a GPU"
new_pack
stand_in gpu_bandwidth 'exit 139'
expect 1 --allow-no-gpu

echo "wrong arguments"
expect 2 --seconds soon
expect 2 --nonsense

echo "the programs, on host memory"
"$collectives" --ranks 2 --memory host >"$work/log" 2>&1 || bad "gpu_collectives"
for name in allreduce reduce-scatter all-gather broadcast barrier; do
  for way in host_memory rails; do
    grep -qE "^\| $name \| $way \| 2 \| [0-9]+ \| right \|$" "$work/log" || bad "no $name by $way"
  done
done
"$collectives" --ranks 3 --memory host --time 1048576 --iterations 2 >"$work/log" 2>&1 ||
  bad "gpu_collectives --time"
grep -qE '^\| 3 \| 1048576 \| [0-9.]+ \|' "$work/log" || bad "no time"
echo "errors begin with the program's name"
! RINGPIPE_TIMEOUT_MS=abc "$collectives" --ranks 2 --memory host >"$work/log" 2>&1 ||
  bad "gpu_collectives with a bad variable: exit status 0"
grep -q '^gpu_collectives: .*RINGPIPE_TIMEOUT_MS' "$work/log" || bad "not its own name"
echo "a job that a signal ended has not passed"
for _ in 1 2 3 4 5; do # it may be over before the signal comes
  exec 3< <(exec "$collectives" --ranks 2 --memory host 2>&1)
  job=$!
  read -r -t 60 -u 3 _ || bad "gpu_collectives does not begin"
  kill -TERM "$job" || true
  status=0
  wait "$job" || status=$?
  exec 3<&-
  ((status == 0)) || break
done
((status == 143)) || bad "gpu_collectives: exit status $status, not 143"
"$bandwidth" --memory host --seconds 0.0001 >"$work/log" 2>&1 || bad "gpu_bandwidth"
(($(grep -c '^| ' "$work/log") == 57)) || bad "not 57 rows"
