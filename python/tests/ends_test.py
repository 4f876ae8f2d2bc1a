"""However a rank ends, it ends without a crash, and the others learn of it in time.
Processes that multiprocessing forks or spawns have communicators of their own."""

import multiprocessing
import os
import re
import signal
import sys
import threading
import time
import unittest

import numpy

import ringpipe
from tests.launch import job
from waiting import until_it_sleeps

RANKS = 4
LOST_S = 2


# --- What a rank runs; rank 3 is the one that ends ------------------------------------


def call_until_lost(comm):
    """For the other ranks: says what they are told, and how long it took."""
    x = numpy.ones(1 << 16)
    try:
        while True:
            began = time.monotonic()
            comm.allreduce(x, out=numpy.empty_like(x))
    except ringpipe.PeerLost as error:
        print(f"lost {error.ranks} after {time.monotonic() - began:.3f} s: {error}", flush=True)


def role(function):
    def run():
        comm = ringpipe.Communicator()
        comm.barrier()
        if comm.rank != 3:
            call_until_lost(comm)
            comm.close()
        else:
            function(comm)
    return run


@role
def end_by_return(comm):
    assert comm.rank == 3


@role
def end_by_sys_exit(_):
    sys.exit(7)


@role
def end_by_exception(comm):
    with comm:
        raise LookupError("the exception of rank 3")


@role
def end_by_os_exit(_):
    os._exit(8)


@role
def end_by_kill(_):
    print("in calls", flush=True)
    signal.pause()


@role
def end_with_arrays(comm):
    global array  # pylint: disable=global-variable-undefined
    array = comm.allocate(1000)
    array[:] = 1


def end_with_a_daemon_thread_in_a_call():
    """Rank 3's thread waits for the others, which never come."""
    comm = ringpipe.Communicator()
    if comm.rank == 3:
        comm.barrier()
        thread = threading.Thread(target=lambda: comm.allreduce(numpy.ones(1 << 20)),
                                  daemon=True)
        thread.start()
        until_it_sleeps(os.getpid(), thread.native_id)
        print("ends", flush=True)
        return
    try:
        comm.barrier()  # which may still be pending when rank 3 has left it
        while True:
            comm.check()
            time.sleep(0.01)
    except ringpipe.Aborted as error:
        print(f"lost (3,) after 0 s: {error}", flush=True)


ROLES = {name: value for name, value in globals().items() if name.startswith("end_")}

# --- In multiprocessing's processes ----------------------------------------------------


def sum_in_child(rank, root, queue):
    comm = ringpipe.Communicator(rank, RANKS, root)
    request = comm.iallreduce(numpy.full(10, rank))
    queue.put(int(request.wait()[0]))
    # It ends without close.


def use_the_parents(comm, x, queue):
    texts = []
    for call in (lambda: comm.allreduce(x), lambda: comm.iallreduce(x), comm.barrier,
                 lambda: comm.allocate(3)):
        try:
            call()
        except ringpipe.InvalidArgument as error:
            texts.append(str(error))
    comm.abort("a child's")
    comm.close()
    queue.put(texts)


def two_communicators(name):
    """A thread for each; they meet other ranks in orders of their own."""
    rank = int(os.environ["RINGPIPE_RANK"])
    sums = [0, 0]

    def work(which):
        with ringpipe.Communicator(rank, RANKS, f"unix:@{name}-{which}") as comm:
            x = numpy.empty(10 + which * 100_000)
            for _ in range(100 - 50 * which):
                x[:] = rank
                comm.allreduce(x)
                assert (x == 6).all()
                sums[which] += 1

    threads = [threading.Thread(target=work, args=(which,)) for which in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sums


class EndsTest(unittest.TestCase):

    def setUp(self):
        self.addCleanup(job.kill_descendants)

    def start(self, name):
        ranks = []
        for rank in range(RANKS):
            environment = {**os.environ, "RINGPIPE_RANK": str(rank),
                           "RINGPIPE_SIZE": str(RANKS),
                           "RINGPIPE_ROOT": f"unix:@{self.id()}-{os.getpid()}"}
            ranks.append(job.Process([sys.executable, "-X", "faulthandler", __file__, name],
                                     environment))
            self.addCleanup(ranks[-1].close)
            self.addCleanup(ranks[-1].kill)
        return ranks

    def check_end(self, name, status, *texts):
        """Returns what the others were told."""
        ranks = self.start(name)
        for rank in ranks:
            rank.finish()
        self.assertEqual(ranks[3].returncode, status, ranks[3].stderr)
        for text in ("Fatal Python error", "terminate called"):
            self.assertNotIn(text, ranks[3].stderr)
        for rank in ranks[:3]:
            self.assertEqual(rank.returncode, 0, rank.stderr)
            told = re.search(r"lost \(.*3,?\) after ([\d.]+) s: (.*)", rank.stdout)
            self.assertIsNotNone(told, rank.stdout + rank.stderr)
            self.assertLess(float(told[1]), job.liveness_bound_s(LOST_S))
            for text in texts:
                self.assertIn(text, told[2])
        return ranks[3]

    def test_return(self):
        self.check_end("end_by_return", 0, "has destroyed its communicator")

    def test_sys_exit(self):
        self.check_end("end_by_sys_exit", 7, "has destroyed its communicator")

    def test_an_exception(self):
        rank = self.check_end("end_by_exception", 1, "has destroyed its communicator")
        self.assertIn("LookupError: the exception of rank 3", rank.stderr)

    def test_os_exit(self):
        self.check_end("end_by_os_exit", 8, "rank 3")

    def test_return_with_arrays(self):
        self.check_end("end_with_arrays", 0, "rank 3")

    def test_a_daemon_thread_in_a_call(self):
        rank = self.check_end("end_with_a_daemon_thread_in_a_call", 0,
                              "rank 3 aborted", "it was closed while a thread was in a call")
        self.assertIn("ends", rank.stdout)

    def test_a_rank_is_killed_while_the_others_are_in_a_call(self):
        ranks = self.start("end_by_kill")
        ranks[3].wait_for("in calls")
        killed = time.monotonic()
        os.kill(ranks[3].pid, signal.SIGKILL)
        for rank in ranks[:3]:
            rank.wait_for(r"lost \(3,\) .*rank 3")
            self.assertLess(time.monotonic() - killed, job.liveness_bound_s(LOST_S))
            self.assertEqual(rank.finish().returncode, 0, rank.stderr)

    def test_two_threads_on_two_communicators(self):
        name = f"threads-{os.getpid()}"
        self.assertEqual(ringpipe.spawn(two_communicators, RANKS, (name,)), [[100, 50]] * RANKS)


class MultiprocessingTest(unittest.TestCase):

    def setUp(self):
        self.addCleanup(job.kill_descendants)

    def check_children(self, method):
        context = multiprocessing.get_context(method)
        queue = context.SimpleQueue()
        root = f"unix:@children-{method}-{os.getpid()}"
        children = [context.Process(target=sum_in_child, args=(rank, root, queue))
                    for rank in range(RANKS)]
        for child in children:
            child.start()
        for child in children:
            child.join(job.PATIENCE_S)
            self.assertEqual(child.exitcode, 0)
        self.assertEqual([queue.get() for _ in children], [6] * RANKS)

    def test_forked_children_have_communicators_of_their_own(self):
        with ringpipe.Communicator(0, 1, f"unix:@parent-{os.getpid()}") as comm:
            self.check_children("fork")
            comm.barrier()

    def test_spawned_children_have_communicators_of_their_own(self):
        self.check_children("spawn")

    def test_a_forked_child_cannot_use_its_parents(self):
        context = multiprocessing.get_context("fork")
        queue = context.SimpleQueue()
        with ringpipe.Communicator(0, 1, f"unix:@parents-{os.getpid()}") as comm:
            x = numpy.ones(10)
            child = context.Process(target=use_the_parents, args=(comm, x, queue))
            child.start()
            child.join(job.PATIENCE_S)
            self.assertEqual(child.exitcode, 0)
            texts = queue.get()
            self.assertEqual(len(texts), 4)
            for text in texts:
                self.assertIn("is a child of it; make one here: ringpipe.Communicator", text)
            comm.allreduce(x)


if __name__ == "__main__":
    if len(sys.argv) == 2 and sys.argv[1] in ROLES:
        ROLES[sys.argv[1]]()
    else:
        job.adopt_orphans()
        unittest.main()
