"""What Python adds to a short call.

    bazel run //bench/python:overhead                 # 1 rank: nobody to wait for
    bazel run //bench/python:overhead -- --ranks 2

In each round every rank makes, one after the other, so many allreduces of 8 bytes by
numpy and this package, by a loop in C, and calls of the yardstick: a METH_FASTCALL
function that takes the same arguments' values and lets the GIL go. Printed are medians of
the rounds, in microseconds a call, of rank 0, and what the package adds in units of the
yardstick; at most 2 is the aim.

The library's own instructions run slower between others than in a loop of nothing else.
What Python adds to C calls that are made one at a time from Python is printed as well.
"""

import argparse
import os
import statistics
import time

import numpy

import ringpipe
import yardstick


def python_calls(comm, x, number):
    allreduce = comm.allreduce
    began = time.perf_counter()
    for _ in range(number):
        allreduce(x, "sum")
    return (time.perf_counter() - began) * 1e6


def yardstick_calls(x, number):
    parse = yardstick.parse
    began = time.perf_counter()
    for _ in range(number):
        parse(x, "sum", None, None)
    return (time.perf_counter() - began) * 1e6


def single_c_calls(x, number):
    """C calls, with others between them."""
    us = 0
    for calls, sign in ((1, 1), (0, -1)):
        c_calls = yardstick.c_calls
        began = time.perf_counter()
        for _ in range(number):
            c_calls(x, calls)
        us += sign * (time.perf_counter() - began) * 1e6
    return us


def empty_loop(number):
    began = time.perf_counter()
    for _ in range(number):
        pass
    return (time.perf_counter() - began) * 1e6


def rank_main(arguments, root):
    """[(Python, C, single C, yardstick)] by round, in microseconds a call."""
    rounds = []
    with ringpipe.Communicator() as comm:
        yardstick.join(comm.rank, comm.size, root)
        x = numpy.zeros(2, "float32")
        for _ in range(arguments.rounds + 1):
            loop = empty_loop(arguments.calls)
            comm.barrier()
            in_python = python_calls(comm, x, arguments.calls) - loop
            in_c = yardstick.c_calls(x, arguments.calls)
            single = single_c_calls(x, arguments.calls)
            least = yardstick_calls(x, arguments.calls) - loop
            rounds.append([us / arguments.calls for us in (in_python, in_c, single, least)])
        yardstick.leave()
    return rounds[1:]  # the first is to get warm


def positive(text):
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return number


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=positive, default=1)
    parser.add_argument("--rounds", type=positive, default=200)
    parser.add_argument("--calls", type=positive, default=300, help="a round, of each kind")
    arguments = parser.parse_args()
    root = f"unix:@overhead-{os.getpid()}"
    rounds = ringpipe.spawn(rank_main, arguments.ranks, (arguments, root))[0]
    in_python, in_c, single, least = (statistics.median(column) for column in zip(*rounds))
    print(f"allreduce of 8 bytes, {arguments.ranks} ranks, us a call: Python {in_python:.3f}, "
          f"C {in_c:.3f}, C one at a time {single:.3f}, yardstick {least:.3f}")
    for name, which in (("C", 1), ("C one at a time", 2)):
        added = statistics.median(one[0] - one[which] for one in rounds)
        ratio = statistics.median((one[0] - one[which]) / one[3] for one in rounds)
        print(f"Python adds to {name} {added:.3f} us: {ratio:.2f} x the yardstick")


if __name__ == "__main__":
    main()
