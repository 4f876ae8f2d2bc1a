"""Calls leave nothing behind: after many of them a rank has the memory and the
descriptors that it had after few.

    soak_test.py FEW MANY
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
    return int(status["VmRSS"].split()[0]), len(os.listdir("/proc/self/fd"))


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


def soak(few, many):
    with ringpipe.Communicator() as comm:
        calls_of_each_kind(comm, few)
        before = look()
        calls_of_each_kind(comm, many - few)
        return before, look()


class SoakTest(unittest.TestCase):

    def test_nothing_grows(self):
        for rank, (before, after) in enumerate(ringpipe.spawn(soak, RANKS, NUMBERS)):
            print(f"rank {rank}: (KiB, descriptors) {before} and {after}")
            self.assertEqual(before[1], after[1])
            self.assertLess(after[0] - before[0], MOST_GROWTH_KIB)


if __name__ == "__main__":
    NUMBERS = int(sys.argv.pop(1)), int(sys.argv.pop(1))
    unittest.main()
