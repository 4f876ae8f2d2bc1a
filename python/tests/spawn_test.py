"""spawn runs a function as the ranks of a job, raises the first failure, and leaves no
process behind."""

import logging
import os
import signal
import sys
import time
import unittest

import numpy

import ringpipe
from tests.launch import job

RANKS = 4


def add(number):
    with ringpipe.Communicator() as comm:
        return comm.rank, float(comm.allreduce(numpy.full(1, number + comm.rank))[0])


def fail_on_rank_2():
    with ringpipe.Communicator() as comm:
        if comm.rank == 2:
            raise KeyError("what rank 2 misses")
        comm.barrier()


def be_killed_on_rank_1():
    with ringpipe.Communicator() as comm:
        if comm.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        comm.barrier()


def leave_with(status, how):
    with ringpipe.Communicator() as comm:
        comm.barrier()
        if comm.rank == 3:
            if how == "exit":
                sys.exit(status)
            os._exit(status)


def go_on_for_ever():
    comm = ringpipe.Communicator()
    if comm.rank == 0:
        raise ValueError("rank 0")
    comm.close()
    while True:
        time.sleep(1)


def return_what_cannot_be_pickled():
    return lambda: None


class Unreadable:
    def __reduce__(self):
        return int, ("no number",)


class Odd(Exception):
    def __init__(self, one, two):
        super().__init__(f"{one} and {two}")


def raise_what_cannot_be_made_again():
    raise Odd(1, 2)


def say_and_wait():
    with ringpipe.Communicator() as comm:
        comm.barrier()
        os.write(1, b"waits\n")  # in one piece, on a pipe that all share
        if comm.rank == 0:
            time.sleep(1000)
        comm.barrier(timeout=1000)


class Lines(logging.Handler):
    def __init__(self):
        super().__init__()
        self.lines = []

    def emit(self, record):
        self.lines.append((record.levelname, record.getMessage()))


def collect_log():
    handler = Lines()
    logging.getLogger("ringpipe").addHandler(handler)
    logging.getLogger("ringpipe").setLevel(logging.DEBUG)
    with ringpipe.Communicator() as comm:
        comm.barrier()
    return handler.lines


class SpawnTest(unittest.TestCase):

    def setUp(self):
        self.addCleanup(job.kill_descendants)

    def tearDown(self):
        self.assertEqual(self.ranks_left(), {})

    def ranks_left(self):
        """Processes but multiprocessing's resource tracker, which lives as long as this
        one."""
        tracker = {}
        for pid, name in job.descendants().items():
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                if b"resource_tracker" not in file.read():
                    tracker[pid] = name
        return tracker

    def raised(self, error, function, *args):
        with self.assertRaises(error) as caught:
            ringpipe.spawn(function, RANKS, args)
        return caught.exception

    def test_it_returns_what_the_ranks_return(self):
        self.assertEqual(ringpipe.spawn(add, RANKS, (10,)), [(r, 46.0) for r in range(RANKS)])
        self.assertEqual(ringpipe.spawn(add, 1, (10,)), [(0, 10.0)])

    def test_an_exception_is_raised_and_not_its_consequences(self):
        error = self.raised(KeyError, fail_on_rank_2)
        self.assertEqual(error.args, ("what rank 2 misses",))
        self.assertIn("rank 2 of 4", error.__notes__[0])
        self.assertIn("in fail_on_rank_2", str(error.__cause__))

    def test_a_rank_that_is_killed(self):
        error = self.raised(ringpipe.RankFailed, be_killed_on_rank_1)
        self.assertEqual(error.rank, 1)
        self.assertIn("rank 1 was ended by SIGKILL", str(error))

    def test_a_rank_that_exits(self):
        self.assertEqual(ringpipe.spawn(leave_with, RANKS, (0, "exit")), [None] * RANKS)
        self.assertEqual(self.raised(SystemExit, leave_with, 5, "exit").code, 5)
        self.assertIn("rank 3 ended with status 0 before its function returned",
                      str(self.raised(ringpipe.RankFailed, leave_with, 0, "_exit")))

    def test_ranks_that_go_on_are_ended(self):
        began = time.monotonic()
        self.raised(ValueError, go_on_for_ever)
        self.assertLess(time.monotonic() - began, job.liveness_bound_s(10))

    def test_a_result_that_cannot_be_pickled(self):
        self.assertIn("what the function returned cannot be pickled",
                      str(self.raised(RuntimeError, return_what_cannot_be_pickled)))
        self.assertIn("what rank 0 returned cannot be read here: ValueError",
                      str(self.raised(RuntimeError, Unreadable)))
        self.assertRegex(str(self.raised(RuntimeError, raise_what_cannot_be_made_again)),
                         "the exception of the rank cannot be pickled .*1 and 2")

    def test_the_log_is_pythons(self):
        os.environ["RINGPIPE_LOG_LEVEL"] = "info"
        self.addCleanup(os.environ.pop, "RINGPIPE_LOG_LEVEL")
        for lines in ringpipe.spawn(collect_log, 2):
            self.assertIn("INFO", {level for level, _ in lines}, lines)

    def start_parent(self):
        parent = job.Process([sys.executable, __file__, "parent"], dict(os.environ))
        self.addCleanup(parent.close)
        self.addCleanup(parent.kill)
        parent.wait_for("(waits\n){4}")
        return parent

    def test_ctrl_c_leaves_no_process(self):
        parent = self.start_parent()
        os.kill(parent.pid, signal.SIGINT)
        self.assertEqual(parent.finish().returncode, -signal.SIGINT, parent.stderr)
        self.assertEqual(job.lasting_descendants(2), {})

    def test_a_parent_that_is_killed_leaves_no_process(self):
        self.start_parent().kill()
        self.assertEqual(job.lasting_descendants(2), {})


if __name__ == "__main__":
    if sys.argv[1:] == ["parent"]:
        ringpipe.spawn(say_and_wait, RANKS)
    else:
        job.adopt_orphans()
        unittest.main()
