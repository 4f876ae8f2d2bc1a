"""Arrays in the memory of a CUDA device, by DLPack and by `__cuda_array_interface__`, in
every call, and after which stream's work a call begins."""

import ctypes
import gc
import os
import threading
import unittest
import weakref

import numpy

import ringpipe
import waiting
from device_memory import (CUDA_HOST, LEGACY, PATIENCE_S, PER_THREAD, CudaArray, Device,
                           DlpackArray, HeldStream, device_count)
from tensor import FLOAT, Tensor

RANKS = 2
COUNT = 50_000
# Far longer than a call needs that does not wait for its stream.
NEGATIVE_S = 0.5


def values(rank, count=COUNT):
    return numpy.random.default_rng(rank).integers(1, 100, count).astype("float32")


def rank_here():
    return int(os.environ["RINGPIPE_RANK"])


def of_all(count=COUNT):
    return numpy.stack([values(rank, count) for rank in range(RANKS)])


def expect(found, expected, *context):
    numpy.testing.assert_array_equal(found.get(), expected, err_msg=str(context), strict=True)


# --- Every call -------------------------------------------------------------------------

def run(comm, is_async, name, *args, **keywords):
    if not is_async:
        return getattr(comm, name)(*args, **keywords)
    return getattr(comm, "i" + name)(*args, **keywords).wait(PATIENCE_S)


def check_every_call(comm, kind, device, is_async):
    def new(numbers):
        return kind(device, numbers)

    def empty(count):
        return new(numpy.zeros(count, "float32"))

    rank, everything = comm.rank, of_all()
    half = COUNT // RANKS
    part = slice(rank * half, (rank + 1) * half)
    x, out = new(values(rank)), empty(COUNT)
    assert run(comm, is_async, "allreduce", x, out=out) is out
    expect(out, everything.sum(axis=0), "allreduce")
    expect(x, everything[rank], "x is as it was")
    in_place = new(values(rank))
    assert run(comm, is_async, "allreduce", in_place, "max") is in_place
    expect(in_place, everything.max(axis=0), "allreduce in place")
    run(comm, is_async, "reduce", x, root=1, out=out if rank == 1 else None)
    expect(out, everything.sum(axis=0), "reduce")
    out = empty(half)
    run(comm, is_async, "reduce_scatter", x, out=out)
    expect(out, everything.sum(axis=0)[part], "reduce_scatter")
    out = empty(RANKS * COUNT)
    run(comm, is_async, "allgather", x, out=out)
    expect(out, everything.reshape(-1), "allgather")
    out = empty(RANKS * COUNT)
    run(comm, is_async, "gather", x, out=out if rank == 0 else None)
    expect(out, everything.reshape(-1) if rank == 0 else numpy.zeros(RANKS * COUNT, "float32"),
           "gather")
    out = empty(half)
    run(comm, is_async, "scatter", x if rank == 1 else None, root=1, out=out)
    expect(out, everything[1][part], "scatter")
    out = empty(COUNT)
    run(comm, is_async, "alltoall", x, out=out)
    expect(out, everything[:, part].reshape(-1), "alltoall")
    x = new(values(rank))
    assert run(comm, is_async, "broadcast", x, root=1) is x
    expect(x, everything[1], "broadcast")
    run(comm, is_async, "barrier", stream=LEGACY)


def check_lists(comm, kind, device):
    counts = (5, 0, COUNT, 1)
    pieces = [kind(device, values(comm.rank, count)) for count in counts]
    out = kind(device, numpy.zeros(sum(counts), "float32"))
    comm.allreduce(pieces, out=out)
    expect(out, numpy.concatenate([of_all(count).sum(axis=0) for count in counts]), "list")
    assert comm.allreduce(pieces) is pieces
    for piece, count in zip(pieces, counts, strict=True):
        expect(piece, of_all(count).sum(axis=0), "list in place", count)
    host = numpy.zeros(sum(counts), "float32")
    comm.allreduce([kind(device, values(comm.rank, counts[0])),
                    *(values(comm.rank, count) for count in counts[1:])], out=host)
    numpy.testing.assert_array_equal(
        host, numpy.concatenate([of_all(count).sum(axis=0) for count in counts]))
    counts = [COUNT, 0]
    own = kind(device, values(comm.rank, counts[comm.rank]))
    out = kind(device, numpy.zeros(COUNT, "float32"))
    comm.allgather(own, counts=counts, out=out)
    expect(out, values(0), "of one rank alone")


def check_types(comm, kind, device):
    x = kind(device, values(comm.rank).astype("float64").reshape(2, -1, 1))
    comm.allreduce(x)
    expect(x, of_all().sum(axis=0).astype("float64").reshape(2, -1, 1), "float64")
    bits = (values(comm.rank).view("uint32") >> 16).astype("uint16")
    x = CudaArray(device, bits)
    comm.allreduce(x, "max", dtype="bfloat16")
    expect(x, (of_all().max(axis=0).view("uint32") >> 16).astype("uint16"), "bfloat16")


def every_call(kind, is_async, *args):
    device = Device()
    with ringpipe.Communicator() as comm:
        check_every_call(comm, lambda *given: kind(*given, *args), device, is_async)


def more_calls(kind):
    device = Device()
    with ringpipe.Communicator() as comm:
        check_lists(comm, kind, device)
        check_types(comm, kind, device)


def each_a_device_of_its_own():
    device = Device(rank_here())
    with ringpipe.Communicator() as comm:
        x = DlpackArray(device, values(comm.rank))
        comm.allreduce(x)
        expect(x, of_all().sum(axis=0))


def pinned_memory():
    """DLPack's CUDA_HOST is host memory; its exporter must not be given a stream."""
    device = Device()
    with ringpipe.Communicator() as comm:
        address = device.allocate_pinned(4 * COUNT)
        array = numpy.ctypeslib.as_array((ctypes.c_float * COUNT).from_address(address))
        array[:] = values(comm.rank)
        pinned = Tensor(array, code=FLOAT, device=CUDA_HOST, version=(1, 0))
        comm.allreduce(pinned)
        numpy.testing.assert_array_equal(array, of_all().sum(axis=0))
        assert pinned.streams == [None] and pinned.releases == 1


# --- Streams ----------------------------------------------------------------------------

def wait_late(comm, x, held, out=None, stream=None):
    """Elements of `x` are there when `held` is let go. Another stream's are not waited
    for by accident: a call that is not ordered ends at once."""
    request = comm.iallreduce(x, out=out, stream=stream)
    try:
        request.wait(NEGATIVE_S)
        raise AssertionError("it has not waited for the stream")
    except ringpipe.WaitOver:
        pass
    held.let_go()
    request.wait(PATIENCE_S)
    expect(x if out is None else out, of_all().sum(axis=0))


def late(comm, device, make, *, blocking=False, stream=None):
    """`make(zeros, number)` makes the array that stream `number` sets late."""
    held = HeldStream(device, blocking)
    x = make(numpy.zeros(COUNT, "float32"), held.number)
    source = CudaArray(device, values(comm.rank))
    with held:
        x.copy_in(held.number, source)
        wait_late(comm, x, held, stream=held.number if stream == "held" else stream)


def late_streams():
    device = Device()
    with ringpipe.Communicator() as comm:
        # The array's own word, and the call's.
        late(comm, device, lambda zeros, number: CudaArray(device, zeros, stream=number))
        late(comm, device, lambda zeros, _: CudaArray(device, zeros), stream="held")
        # Of a stream that the legacy default one waits for.
        late(comm, device, lambda zeros, _: CudaArray(device, zeros, stream=LEGACY),
             blocking=True)
        late(comm, device, lambda zeros, _: CudaArray(device, zeros, version=2), blocking=True)
        # The exporter lets the legacy default stream wait, or the call's.
        late(comm, device, lambda zeros, number: DlpackArray(device, zeros, work=number))
        late(comm, device, lambda zeros, number: DlpackArray(device, zeros, work=number),
             stream=device.stream())
        late(comm, device, lambda zeros, number: DlpackArray(device, zeros, work=number,
                                                             version=(0, 8)))
        late(comm, device, lambda zeros, number: DlpackArray(device, zeros, work=number),
             stream=PER_THREAD)
        # The result's memory may be in use, too.
        for x, kind in ((CudaArray(device, values(comm.rank)), CudaArray),
                        (DlpackArray(device, values(comm.rank)), DlpackArray)):
            held = HeldStream(device)
            name = "stream" if kind is CudaArray else "work"
            out = kind(device, values(0), **{name: held.number})
            with held:
                wait_late(comm, x, held, out)


def late_host_memory():
    """A stream's copy to the host is waited for where the call has that stream."""
    device = Device()
    with ringpipe.Communicator() as comm:
        address = device.allocate_pinned(4 * COUNT)
        array = numpy.ctypeslib.as_array((ctypes.c_float * COUNT).from_address(address))
        array[:] = 0
        source = CudaArray(device, values(comm.rank))
        with HeldStream(device) as held:
            device.copy_in(held.number, address, source.address, 4 * COUNT)
            request = comm.iallreduce(array, stream=held.number)
            try:
                request.wait(NEGATIVE_S)
                raise AssertionError("it has not waited for the stream")
            except ringpipe.WaitOver:
                pass
            held.let_go()
            request.wait(PATIENCE_S)
        numpy.testing.assert_array_equal(array, of_all().sum(axis=0))


def late_in_a_call_that_blocks():
    device = Device()
    held = HeldStream(device)
    x = CudaArray(device, numpy.zeros(COUNT, "float32"), stream=held.number)
    with ringpipe.Communicator() as comm:
        comm.allreduce(x)
        source = CudaArray(device, values(comm.rank))
        caller = threading.get_native_id()

        def let_go():
            waiting.until_it_sleeps(os.getpid(), caller)
            held.let_go()

        thread = threading.Thread(target=let_go)
        with held:
            x.copy_in(held.number, source)
            thread.start()
            comm.allreduce(x)
            thread.join()
        expect(x, of_all().sum(axis=0))


def nothing_waited_for():
    """-1 is the user's word that the arrays are ready, whatever they say."""
    device = Device()
    held = HeldStream(device)
    x = CudaArray(device, values(rank_here()), stream=held.number)
    array = DlpackArray(device, values(rank_here()), work=held.number)
    ready = CudaArray(device, values(0))
    with ringpipe.Communicator() as comm:
        comm.allreduce(ready)
        with held:
            comm.allreduce(x, stream=-1, timeout=PATIENCE_S)
            comm.allreduce(array, stream=-1, timeout=PATIENCE_S)
            assert array.exporter.streams == [-1]
            comm.allreduce(ready, timeout=PATIENCE_S)  # it says so itself
            assert held.holds()
        for found in (x, array):
            expect(found, of_all().sum(axis=0))


# --- Whose memory it is meanwhile ----------------------------------------------------------

def held_until_the_end(kind):
    """By a call under way whose request and arrays nobody else has; once."""
    device = Device()
    library = ctypes.CDLL(os.environ["DELETER"])

    def released():
        return (ctypes.c_int.in_dll(library, "released_with_gil").value,
                ctypes.c_int.in_dll(library, "released_without_gil").value)

    keywords = {} if kind is CudaArray else {"deleter": library.release_tensor}
    with ringpipe.Communicator() as comm:
        comm.allreduce(kind(device, values(0), **keywords))
        begin = released()
        assert begin == ((0, 0) if kind is CudaArray else (1, 0)), begin
        x = kind(device, values(comm.rank), **keywords)
        array = weakref.ref(x)
        with HeldStream(device) as held:
            request = comm.iallreduce(x, stream=held.number)
            kept = [] if kind is CudaArray else [x]  # the exporter has no owner
            del request, x
            gc.collect()
            comm.check()
            assert array() is not None and released() == begin
            held.let_go()
            while array() is not None if kind is CudaArray else released() == begin:
                comm.check()  # reaps, on this thread
            expect_released = begin[0] + (0 if kind is CudaArray else 1)
            assert released() == (expect_released, 0), released()
            del kept
        comm.barrier()
    assert released() == (expect_released, 0), released()


class DeviceArraysTest(unittest.TestCase):

    def test_every_call_with_dlpack(self):
        for is_async in (False, True):
            ringpipe.spawn(every_call, RANKS, (DlpackArray, is_async))

    def test_every_call_with_the_cuda_array_interface(self):
        for is_async in (False, True):
            ringpipe.spawn(every_call, RANKS, (CudaArray, is_async))

    def test_managed_memory(self):
        ringpipe.spawn(every_call, RANKS, (DlpackArray, False, True))

    def test_lists_and_types(self):
        for kind in (DlpackArray, CudaArray):
            ringpipe.spawn(more_calls, RANKS, (kind,))

    def test_pinned_memory_is_the_hosts(self):
        ringpipe.spawn(pinned_memory, RANKS)

    def test_ranks_may_have_devices_of_their_own(self):
        if device_count() < RANKS:
            self.skipTest(f"needs {RANKS} devices")
        ringpipe.spawn(each_a_device_of_its_own, RANKS)

    def test_a_call_begins_after_the_work_of_its_stream(self):
        ringpipe.spawn(late_streams, RANKS)

    def test_a_call_on_host_memory_may_have_a_stream(self):
        ringpipe.spawn(late_host_memory, RANKS)

    def test_a_call_that_blocks_waits_for_its_stream(self):
        ringpipe.spawn(late_in_a_call_that_blocks, RANKS)

    def test_the_user_may_say_that_nothing_has_to_be_waited_for(self):
        ringpipe.spawn(nothing_waited_for, RANKS)

    def test_arrays_are_held_until_the_end_and_given_back_once_with_the_gil(self):
        for kind in (DlpackArray, CudaArray):
            ringpipe.spawn(held_until_the_end, RANKS, (kind,))


if __name__ == "__main__":
    unittest.main()
