#!/bin/bash
# gpu_suite_test.sh SCRIPT COLLECTIVES BANDWIDTH PYTHON_TEST DRIVER ALLREDUCE: what
# bench/gpu_suite does with the outcome of its programs, with stand-ins for them; the
# programs themselves, on host memory; and some of them on the fake driver, on which
# .ci/run runs them all.
set -euo pipefail

script=$1
collectives=$2
bandwidth=$3
python_test=$4
driver=$5
allreduce=$6
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
    echo "| allreduce | rails | $2 | 360 | right |"'
  # As the real one prints it.
  # shellcheck disable=SC2016
  stand_in allreduce '[[ $1 == --ranks && $* == *" --memory device -J "* ]] || exit 3
    [[ $CUDA_VISIBLE_DEVICES == "${expected_gpu:-0}" ]] || exit 4
    bytes=268435456
    [[ $* != *" -b 8 -e 16777216 -f 8 -n 20" ]] || bytes=8
    [[ $RINGPIPE_DEVICE == soft || $* != *" -b 268435456 "* ]] || us=1
    echo "# ringpipe 0.1.0 allreduce, ranks: $2"
    echo "#                           out-of-place                in-place          "
    echo "    $bytes  2  float  sum  -1  47.8  0.05  0.05  0  40.9  0.06  0.06  0"
    echo "#   out-of-place median ${us:-4}000 us (95 % CI 3 to 5)  min 9  max 11  n 20  first call 99 us"
    echo "#   in-place     median 7 us (95 % CI 3 to 5)  min 6  max 8  n 20  first call 98 us"'
  mkdir "$work/pack/programs/gloo"
  # shellcheck disable=SC2016
  stand_in gloo/gloo_allreduce '[[ $* == "$1 $2 1 $4 allreduce_ring tcp 0" ]] || exit 3
    [[ $LD_LIBRARY_PATH == */programs/gloo && $4 == $(($2 < 268435456 ? 20 : 6)) ]] || exit 4
    echo "in_place wrong 0 first 55.123 samples 1.0 1.0 1.0"
    echo "out_of_place wrong 0 first 66.123 samples $1.500 100.250 3.000 2000.125"'
  stand_in questions 'printf "| question | the fake driver | this one |\n| --- | --- | --- |\n"
    echo "questions: loading the kernels took 0.7 s"
    echo "| Is it so? | yes | no |"
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
  rm -rf "$work/results.md" "$work/results.md.d"
  RINGPIPE_DEPTH=2 "$work/pack/run" --output "$work/results.md" "$@" >"$work/log" 2>&1 || status=$?
  ((status == expected)) || bad "exit status $status, not $expected"
}

bad() {
  echo "$*; the output was:"
  cat "$work/log"
  [[ ! -e $work/results.md ]] || cat "$work/results.md"
  exit 1
}

lacks() { ! grep -qE -- "$1" "$work/results.md" || bad "\"$1\" in the results"; }

has() { grep -qE -- "$1" "$work/results.md" || bad "no \"$1\" in the results"; }

echo "everything passes"
new_pack
expect 0
[[ $(grep -A 2 '^| question |' "$work/results.md") == *$'\n| Is it so? | yes | no |' ]] ||
  bad "the table of questions is torn"
has '^Loading the kernels took 0\.7 s'
has '^The fake driver is wrong about 1 of 1\.'
has "^Measured on $(date -u +%Y)-[0-9-]+ [0-9:]+ UTC"
has "^\| $(date -u +%Y)-[0-9-]+ \| Fake GPU 9000 \| .* \| v1.2-3 \| "
has '^\| cuda_accelerator_test \| passed \| [0-9]+ \|$'
has '^\| device_arrays_test \| passed \| [0-9]+ \|$'
gloo_median=([2]=51.6 [4]=52.4 [8]=54.4)
for ranks in 2 4 8; do
  has "^\| allreduce \| rails \| $ranks \| 360 \| right \|$"
  # busbw is 2(p-1)/p times bytes, by the median.
  has "^\| $ranks \| 8 \| shared memory \| 20 \| 0 \| 4000 \| 9 \| 11 \| 0\.000 \| 99 \| "
  has "^\| $ranks \| 268435456 \| software device \| 20 \| 0 \| 4000 \| 9 \| 11 \| "
  # Of gloo's 4 samples the mean of the two in the middle.
  has "^\| $ranks \| 268435456 \| shared memory \| .* \| ${gloo_median[ranks]} \|$"
done
has '^\| 2 \| 268435456 \| shared memory \| 20 \| 0 \| 1000 \| 9 \| 11 \| 268\.435 \| 99 \| '
has '^\| 8 \| 268435456 \| shared memory \| 20 \| 0 \| 1000 \| 9 \| 11 \| 469\.762 \| 99 \| '
has "^gloo's is .* host memory, and copies to and from the GPU, .* are not in its time"
lacks 'fake driver.s: there was no GPU'
lacks 'not ended'
grep -q PASSED "$work/results.md.d/cuda_memory_test" || bad "what a step has printed is not kept"
has '^\| copy to the host \| 131072 \| 20.5 \|$'
has 'cut because of time: nothing'

echo "allreduces run on the first GPU that is visible, also where there are several"
new_pack
expected_gpu=2 CUDA_VISIBLE_DEVICES=2,3 expect 0
has '^\| allreduce_large_8 \| passed '

echo "results of before are none of this run"
before=$work/results.md.d/collectives_9
echo "| old | rails | 9 | 1 | right |" >"$before"
"$work/pack/run" --output "$work/results.md" >"$work/log" 2>&1 || bad "exit status $?"
[[ ! -e $before ]] || bad "the folder was not emptied"

echo "where gloo was not packed its column is empty, with the reason, and that is no failure"
new_pack
rm "$work/pack/programs/gloo/gloo_allreduce"
echo "gloo was not installed" >"$work/pack/programs/gloo/missing"
expect 0
has '^\| gloo \| not run: gloo was not installed \| 0 \|$'
has '^\| 4 \| 8 \| shared memory \| .* \| – \|$'
has '^gloo: gloo was not installed\.$'

echo "a failure of gloo's is none of ringpipe's, and named"
new_pack
stand_in gloo/gloo_allreduce 'echo broken; exit 1'
expect 0
has '^\| gloo_4 \| FAILED, exit status 1 \|'
has '^\| 4 \| 8 \| shared memory \| .* \| – \|$'

echo "a wrong sum is a failure"
new_pack
stand_in allreduce 'echo "    8  2  float  sum  -1  47.8  0.05  0.05  1  40.9  0.06  0.06  2"
  echo "#   out-of-place median 4 us  min 9  max 11  n 1  first call 99 us"
  exit 1'
expect 1
has '^\| allreduce_soft_2 \| FAILED, exit status 1 '
has '^\| 2 \| 8 \| shared memory \| 1 \| 3 \| 4 \| '

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
has '^- allreduce_soft_8: not begun'
has '^- gloo_8: not begun'

echo "a program that is killed before its time is no program that was cut"
new_pack
# shellcheck disable=SC2016  # for the stand-in
stand_in host_accelerator_test 'kill -KILL $$'
expect 1
has '^\| host_accelerator_test \| FAILED, exit status 137 '
has 'cut because of time: nothing'

echo "a signal ends it at once, with what it runs, and leaves what there was"
new_pack
mkfifo "$work/running"
stand_in cuda_memory_test "echo begun; exec sleep 300 >$work/running"
# At once means: also while the suite has only just begun the program.
for _ in 1 2 3 4 5; do
  rm -rf "$work/results.md" "$work/results.md.d"
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
  has '^\*\*The run has not ended: this is what there was after questions\.'
  has '^\| questions \| passed '
  lacks '^\| cuda_memory_test '
  has '^\| Is it so\? \| yes \| no \|'
  grep -q begun "$work/results.md.d/cuda_memory_test" || bad "the step's output is not kept"
done

echo "where the suite itself is killed, what it has stays"
rm -rf "$work/results.md" "$work/results.md.d"
stand_in cuda_memory_test "echo \$\$; exec sleep 300 >$work/running"
"$work/pack/run" --output "$work/results.md" >"$work/log" 2>&1 &
suite=$!
exec 3<"$work/running"
kill -KILL "$suite"
wait "$suite" 2>/dev/null || true
kill "$(cat "$work/results.md.d/cuda_memory_test")"
exec 3<&-
has '^\| questions \| passed '
has '^\*\*The run has not ended'

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
stand_in gpu_bandwidth 'echo "cuda:0 is busy"; exit 78'
expect 1 --allow-no-gpu
grep -q 'the GPU cannot be used: cuda:0 is busy' "$work/log" || bad "no reason"
[[ ! -e $work/results.md ]] || bad "results without a GPU"

# check_device STATUS TEXT VARIABLE=VALUE...: what the real check says on the fake driver.
check_device() {
  local expected=$1 text=$2 status=0
  shift 2
  env LD_LIBRARY_PATH="$(dirname "$driver")" "$@" "$bandwidth" --device >"$work/log" 2>&1 || status=$?
  ((status == expected)) || bad "$*: exit status $status, not $expected"
  grep -q -- "$text" "$work/log" || bad "$*: no \"$text\""
}

echo "a GPU that cannot be used is named as what it is"
retain=cuDevicePrimaryCtxRetain
check_device 0 '^the fake driver$' FAKE_CUDA_COMPUTE_MODE=0
check_device 0 '^fake GPU 0, .* CUDA 12\.0 of the driver$' FAKE_CUDA_COMPUTE_MODE=0
check_device 77 '^no GPU: .*CUDA_ERROR_NO_DEVICE' FAKE_CUDA_DEVICES=0
check_device 78 '^cuda:0 (fake GPU 0, .*) is busy: .*UNAVAILABLE' FAKE_CUDA_FAIL=$retain:0:46
check_device 78 '^cuda:0 (fake GPU 0, .*) is busy: .*OUT_OF_MEMORY' FAKE_CUDA_FAIL=$retain:0:2
check_device 78 ' is exclusive: .*UNAVAILABLE' FAKE_CUDA_FAIL=$retain:0:46 FAKE_CUDA_COMPUTE_MODE=3
check_device 78 ' is prohibited: .*nvidia-smi' FAKE_CUDA_COMPUTE_MODE=2
check_device 78 ' is broken: .*LAUNCH_FAILED' FAKE_CUDA_FAIL=$retain:0:719
check_device 78 ' is unsuitable: .*INVALID_PTX' FAKE_CUDA_FAIL=cuModuleLoadData:0:218
check_device 78 '^the driver does not work: .*999' FAKE_CUDA_FAIL=cuInit:0:999
check_device 78 '^the driver does not work: .*ended the process .* in cuInit' FAKE_CUDA_FAIL=cuInit:0:-2
echo "also one that one process could use, since there are several"
check_device 78 ' is exclusive: .*several' FAKE_CUDA_COMPUTE_MODE=3
echo "and another GPU that could be used"
check_device 78 '; cuda:1 (fake GPU 1, .*) can be used: .*CUDA_VISIBLE_DEVICES' FAKE_CUDA_FAIL=$retain:1:46
echo "where there is no driver, that is it"
mkdir "$work/none"
echo "no library" >"$work/none/libcuda.so.1"
check_device 77 '^no GPU: CUDA: no driver: ' LD_LIBRARY_PATH="$work/none"

echo "on the fake driver it says so, and sizes are small; the bandwidth and allreduce are real"
new_pack
cp "$bandwidth" "$work/pack/programs/gpu_bandwidth"
cp "$allreduce" "$work/pack/programs/allreduce"
# shellcheck disable=SC2016
stand_in gloo/gloo_allreduce 'echo "out_of_place wrong 0 first 6 samples $2.25"'
LD_LIBRARY_PATH=$(realpath "$(dirname "$driver")") expect 0
[[ $(head -n 1 "$work/results.md") == "**This is the fake driver's: there was no GPU."*"no time or bandwidth"* ]] ||
  bad "the first line does not say that it is the fake driver"
has '^\| [0-9-]+ \| fake GPU 0, .* \| the fake one \| v1\.2-3 \|'
for ranks in 2 4 8; do
  for bytes in 8 64 512 4096 65536; do
    has "^\| $ranks \| $bytes \| shared memory \| [24] \| 0 \| [0-9.]+ \| [0-9.]+ \| [0-9.]+ \| [0-9.]+ \| [0-9.]+ \| $bytes\.[23] \|$"
  done
  has "^\| $ranks \| 65536 \| software device \| 2 \| 0 \| "
  grep -q '"memory": *"device"' "$work/results.md.d/allreduce_small_$ranks.json" || bad "no report of device memory"
done
has '^\| slot = device memory sum slot, bfloat16 \| 65536 \| '
(($(grep -c '^| .* | 65536 | [0-9.]* |$' "$work/results.md") == 19)) || bad "not 19 rows"

echo "wrong arguments"
expect 2 --seconds soon
expect 2 --nonsense
expect 2 --fake --pack "$work/other"
expect 1 --fake # of a pack

echo "the programs, on host memory"
"$collectives" --ranks 2 --memory host >"$work/log" 2>&1 || bad "gpu_collectives"
for name in allreduce reduce-scatter all-gather broadcast barrier; do
  for way in host_memory rails; do
    grep -qE "^\| $name \| $way \| 2 \| [0-9]+ \| right \|$" "$work/log" || bad "no $name by $way"
  done
done
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
"$bandwidth" --memory host --seconds 0.0001 --sizes 4096,8 >"$work/log" 2>&1 || bad "gpu_bandwidth --sizes"
(($(grep -cE '^\| .* \| (4096|8) \| ' "$work/log") == 38)) || bad "not 38 rows"
! "$bandwidth" --memory host --sizes 12 >"$work/log" 2>&1 || bad "12 bytes are no multiple of 8"
