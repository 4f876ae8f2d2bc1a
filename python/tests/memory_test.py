"""Arrays of allocate() are mapped as long as one of them lives, and those of a call are
held until it ends."""

import contextlib
import gc
import logging
import os
import sys
import threading
import unittest
import weakref

import numpy

import ringpipe
from tests.launch import job

RANKS = 4
BYTES = 8 << 20


def mapped(address):
    """Whether there is memory at that address."""
    with open("/proc/self/maps", encoding="utf-8") as file:
        for line in file:
            begin, end = (int(text, 16) for text in line.split()[0].split("-"))
            if begin <= address < end:
                return True
    return False


def reduce_in_allocated():
    comm = ringpipe.Communicator()
    x = comm.allocate((2, BYTES // 8))
    assert x.dtype == numpy.float32 and x.shape == (2, BYTES // 8) and not x.any()
    x += comm.rank
    comm.allreduce(x)
    assert (x == 6).all()
    address = x.ctypes.data
    tail = x[1, -10:]
    del x
    gc.collect()
    comm.close()
    assert (tail == 6).all()
    tail[:] = 7
    assert mapped(address)
    del tail
    gc.collect()
    assert not mapped(address)


def close_with_arrays_on_rank_1(name):
    """What the log warns of: who waits in vain says so."""
    warnings = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: warnings.append(record.getMessage())
    logging.getLogger("ringpipe").addHandler(handler)
    with ringpipe.Communicator(job_id=f"{name}-all") as others, \
            ringpipe.Communicator(job_id=name) as comm:
        x = comm.allocate(1000)
        x[:] = 1
        comm.allreduce(x)
        if comm.rank != 1:
            del x
        gc.collect()
        others.barrier()  # so that they close at the same time
        comm.close()
        others.barrier()  # rank 1 still has its array
        if others.rank == 1:
            assert (x == RANKS).all()
            x[:] = 2
    return warnings


def fail_with_allocated():
    comm = ringpipe.Communicator()
    x = comm.allocate(1000)
    x[:] = comm.rank
    if comm.rank == 0:
        comm.abort("for the test")
    try:
        comm.allreduce(x)
        assert False, "it was aborted"
    except ringpipe.Aborted:
        pass
    x[:] = 5
    comm.close()
    del comm
    gc.collect()
    assert (x == 5).all() and mapped(x.ctypes.data)
    address = x.ctypes.data
    del x
    gc.collect()
    assert not mapped(address)


def drop_all_but_the_array():
    x = ringpipe.Communicator().allocate(1000, "int64")
    gc.collect()
    x[:] = 3
    view = memoryview(x)
    del x
    assert view[999] == 3
    view.release()


def is_held(x):
    try:
        x.append(1)
    except BufferError:
        return True
    x.pop()
    return False


def hold_while_a_call_is_under_way():
    with ringpipe.Communicator() as comm, ringpipe.Communicator(job_id="word") as word:
        x, out = bytearray(8), numpy.zeros(8, "uint8")
        array = weakref.ref(out)
        if comm.rank == 0:
            request = comm.iallreduce(x, out=out)
            assert is_held(x)
            del request, out
            gc.collect()
            assert is_held(x) and array() is not None
            word.barrier()
            # Reaped by a later call, on this thread.
            comm.iallreduce(numpy.zeros(1)).wait()
            while is_held(x):
                comm.check()
            assert array() is None
        else:
            word.barrier()
            comm.iallreduce(x, out=out).wait()
            assert not is_held(x)
            comm.allreduce(numpy.zeros(1))


class Owner(numpy.ndarray):
    """An array that has its own request, and makes a call when it ends."""

    request = comm = None

    def __del__(self):
        if self.comm is not None:
            self.comm.check()


def hold_requests_in_arrays():
    with ringpipe.Communicator() as comm:
        out = [numpy.zeros(100) for _ in range(50)]
        for result in out:
            x = numpy.full(100, comm.rank, float).view(Owner)
            x.request = comm.iallreduce(x, out=result)
            x.comm = comm
            # Its memory holds it, and what it has, until the call is reaped.
            array = weakref.ref(x)
            del x
        while array() is not None:
            comm.check()
        assert all((result == 6).all() for result in out)


def allocate_once(comm, begun, arrays):
    begun.wait()
    with contextlib.suppress(ringpipe.InvalidArgument):  # closed before
        arrays.append(comm.allocate(BYTES))


class MemoryTest(unittest.TestCase):

    def test_the_arrays_of_a_call_under_way_are_held(self):
        ringpipe.spawn(hold_while_a_call_is_under_way, RANKS)

    def test_an_array_may_have_its_own_request(self):
        ringpipe.spawn(hold_requests_in_arrays, RANKS)

    def test_it_outlives_close(self):
        ringpipe.spawn(reduce_in_allocated, RANKS)

    def test_nobody_waits_for_a_rank_that_closes_and_keeps_an_array(self):
        self.assertEqual(ringpipe.spawn(close_with_arrays_on_rank_1, RANKS,
                                        (f"arrays-{os.getpid()}",)), [[]] * RANKS)

    def test_it_outlives_a_failure(self):
        ringpipe.spawn(fail_with_allocated, RANKS)

    def test_it_needs_no_communicator_object(self):
        ringpipe.spawn(drop_all_but_the_array, RANKS)

    def test_it_is_there_if_another_thread_closes_meanwhile(self):
        """Closes later and later, until the thread is first."""
        self.addCleanup(sys.setswitchinterval, sys.getswitchinterval())
        sys.setswitchinterval(1e-5)
        arrays = []
        for number in range(100):
            comm = ringpipe.Communicator(0, 1, f"unix:@memory-close-{os.getpid()}-{number}")
            begun = threading.Barrier(2)
            thread = threading.Thread(target=allocate_once, args=(comm, begun, arrays))
            thread.start()
            begun.wait()
            for _ in range(number * 1000):
                pass
            comm.close()
            thread.join()
            for array in arrays:
                array[:] = 1
            arrays.clear()

    def test_it_is_given_back(self):
        """Also what the communicator itself has: descriptors."""
        def once(number):
            with ringpipe.Communicator(0, 1, f"unix:@memory-{os.getpid()}-{number}") as comm:
                x = comm.allocate(BYTES, "uint8")
                x[:] = 1
                comm.allocate((0, 3))
                del x
        once(0)
        before = len(os.listdir("/proc/self/fd"))
        for number in range(1, 20):
            once(number)
        self.assertEqual(len(os.listdir("/proc/self/fd")), before)
        with open("/proc/self/maps", encoding="utf-8") as file:
            self.assertLess(sum("ringpipe" in line and ".so" not in line for line in file), 5)


if __name__ == "__main__":
    job.adopt_orphans()
    unittest.main()
