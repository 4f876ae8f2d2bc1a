"""What the comparing commands share: command lines, fresh processes, ringpipe's
own program, and the interval of a median."""

import argparse
import json
import math
import os
import pathlib
import re
import shlex
import signal
import subprocess
import tempfile

BENCH = pathlib.Path(__file__).resolve().parent
MIB = 1 << 20
PLACES = ("out_of_place", "in_place")
# Open MPI does not start as root otherwise.
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


class Failure(Exception):
    """A program could not be run, failed, or took too long."""


def parse_size(text):
    match = re.fullmatch(r"(\d+)([KMG]?)", text.upper())
    size = 0
    if match:
        size = int(match[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[match[2]]
    if size < 4:
        raise argparse.ArgumentTypeError(
            f"{text}: at least 4 bytes, such as 8, 64K, 256M or 1G")
    return size


def size_text(size):
    for shift, unit in ((20, "M"), (10, "K")):
        if size >= 1 << shift and size % (1 << shift) == 0:
            return f"{size >> shift}{unit}"
    return str(size)


def list_of(parse):
    return lambda text: [parse(part) for part in text.split(",")]


def positive(text):
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text}: a whole number from 1 up")
    return int(text)


def run(command, environment, patience_s=600):
    """Returns what the command printed. Raises Failure.

    What does not end in time is killed, with all processes that it started.
    """
    command = [str(word) for word in command]
    try:
        process = subprocess.Popen(
            command, env={**os.environ, **environment}, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, start_new_session=True)
    except OSError as error:
        raise Failure(f"{command[0]}: {error.strerror}; ./setup installs what "
                      "is compared, bazel builds the rest") from error
    try:
        output, _ = process.communicate(timeout=patience_s)
    except BaseException as error:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        if not isinstance(error, subprocess.TimeoutExpired):
            raise
        raise Failure(f"{shlex.join(command)} took more than {patience_s:.0f} "
                      f"s:\n{output}") from error
    if process.returncode != 0:
        raise Failure(f"{shlex.join(command)} ended with exit status "
                      f"{process.returncode}:\n{output}")
    return output


def run_ringpipe(program, arguments, environment, patience_s=600):
    """Runs bench/allreduce; returns its report for the first size."""
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        run([program, *arguments, "-J", file.name],
            {"BUILD_WORKING_DIRECTORY": "/", **environment}, patience_s)
        # The program replaces the file.
        report = json.loads(pathlib.Path(file.name).read_text())
    return report["sizes"][0]


def environment_of(device):
    """Of ringpipe: "host", or what RINGPIPE_DEVICE names."""
    if device == "host":
        return {}
    return {"RINGPIPE_HOST_MEMORY": "never", "RINGPIPE_DEVICE": device}


def iterations_of(ranks, size):
    """(warmups, iterations): of a run of ringpipe that takes some tenths of
    a second."""
    for calls, below in ((200, MIB / 4), (30, MIB * 4), (8, 64 * MIB)):
        if ranks * size < below:
            return 3, calls
    return 1, 3


class Placement:
    """Where the two cores of this machine are to each other, as core_placement
    says: "siblings", "one L3" or "far". On some virtual machines it changes
    every few seconds, and times with it."""

    UNKNOWN = "not recorded"

    def __init__(self, program):
        self.program = program
        cores = len(os.sched_getaffinity(0))
        # With more, nobody knows which of them the ranks run on.
        self.why_unknown = (
            f"{cores} cores, not 2" if cores != 2 else
            None if program.exists() else
            f"no {program}; build it: bazel build //bench:core_placement")

    def now(self):
        """UNKNOWN also while other work keeps the cores too busy to tell."""
        if self.why_unknown:
            return self.UNKNOWN
        for _ in range(3):
            try:
                return parse_placement(run([self.program], {}, patience_s=30))
            except Failure as error:
                if "too busy" not in str(error):
                    raise
        return self.UNKNOWN


def parse_placement(text):
    match = re.match(r"(siblings|one L3|far) \d+ ns", text)
    if not match:
        raise Failure(f"core_placement printed {text!r}")
    return match[1]


def parse_peer(text):
    """{place: slowest rank's times in us}, as floor and the programs in peers/
    print."""
    samples = {}
    for place in PLACES:
        # "unchecked": bench/floor, where nothing can be right.
        line = re.search(rf"^{place} wrong (?:0|unchecked) .* samples (.*)$",
                         text, re.M)
        if line:
            samples[place] = [float(word) for word in line[1].split()]
    if not samples:
        raise Failure(f"no result, or a wrong one:\n{text}")
    return samples


def interval(values):
    """(low, high, confidence) of the median, from order statistics.

    As in bench/statistics.h: the narrowest with at least 95 %, and the whole
    range where there is none.
    """
    ordered = sorted(values)
    count = len(ordered)

    def outside(k):  # P(fewer than k of `count` are below the median)
        return sum(math.comb(count, i) for i in range(k)) / 2**count

    k = 1
    while k < count // 2 and outside(k + 1) <= 0.025:
        k += 1
    return ordered[k - 1], ordered[-k], max(0, 1 - 2 * outside(k))


def percent(confidence):
    """As it is said of an interval: whole, and 95 for all above."""
    return math.floor(100 * min(confidence, 0.95))


def save(document, path):
    """As JSON; nothing where `path` is None."""
    if path:
        # A run that is cut off must not leave half a file.
        temporary = path.with_name(path.name + ".part")
        temporary.write_text(json.dumps(document, indent=1) + "\n")
        temporary.replace(path)
