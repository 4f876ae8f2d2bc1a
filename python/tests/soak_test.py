"""Calls and communicators leave nothing behind: after many of them a rank has the memory,
the descriptors and the threads that it had after few.

    soak_test.py FEW_CALLS MANY_CALLS FEW_COMMUNICATORS MANY_COMMUNICATORS
"""

import os
import sys
import unittest

import numpy

import ringpipe

RANKS = 4
# The allocator's own habits.
MOST_GROWTH_KIB = 1024


def look():
    with open("/proc/self/status", encoding="utf-8") as file:
        status = dict(line.split(":", 1) for line in file)
    return int(status["VmRSS"].split()[0]), len(os.listdir("/proc/self/fd")), int(status["Threads"])


def calls_of_each_kind(comm, number):
    x = numpy.ones(100, "float32")
    pieces = [numpy.ones(3), numpy.ones(5)]
    for turn in range(number // 10):
        comm.allreduce(x, "max")
        comm.allreduce(pieces, "max")
        comm.iallreduce(x, "max").wait()
        for _ in range(3):
            comm.iallreduce(pieces, "max")  # dropped
        comm.allgather(x, counts=[100] * RANKS)
        comm.reduce_scatter(x)
        request = comm.iallgather(x)
        request.fileno()
        request.wait()
        for bad in ([pieces[0], x], 1.0):
            try:
                comm.allreduce(bad)
                assert False, bad
            except (ringpipe.InvalidArgument, TypeError):
                pass
        if turn % 10 == 0:
            comm.allocate(1000)[:] = 1
        comm.barrier()
    # With the end of a later call, all before it are done, and their descriptors go.
    del request
    comm.iallreduce(x, "max").wait()
    comm.check()


def soak(few, many):
    with ringpipe.Communicator() as comm:
        calls_of_each_kind(comm, few)
        before = look()
        calls_of_each_kind(comm, many - few)
        return before, look()


def use_communicators(numbers, name):
    """One after another; with a call of each kind of wait, and an array."""
    for number in numbers:
        with ringpipe.Communicator(job_id=f"{name}-{number}") as comm:
            x = comm.allocate(100)
            x[:] = 1
            comm.allreduce(x)
            comm.iallreduce(x).wait()
            assert x[0] == RANKS ** 2
            del x


def soak_communicators(few, many, name):
    use_communicators(range(few), name)
    before = look()
    use_communicators(range(few, many), name)
    return before, look()


class SoakTest(unittest.TestCase):

    def check(self, function, *arguments):
        for rank, (before, after) in enumerate(ringpipe.spawn(function, RANKS, arguments)):
            print(f"rank {rank}: (KiB, descriptors, threads) {before} and {after}")
            self.assertEqual(before[1:], after[1:])
            self.assertLess(after[0] - before[0], MOST_GROWTH_KIB)

    def test_nothing_grows_with_calls(self):
        self.check(soak, *CALLS)

    def test_nothing_grows_with_communicators(self):
        self.check(soak_communicators, *COMMUNICATORS, f"soak-{os.getpid()}")


if __name__ == "__main__":
    CALLS = int(sys.argv.pop(1)), int(sys.argv.pop(1))
    COMMUNICATORS = int(sys.argv.pop(1)), int(sys.argv.pop(1))
    unittest.main()
