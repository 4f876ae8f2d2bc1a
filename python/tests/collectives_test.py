"""Every call between 4 ranks gives what numpy computes: each collective, type and
operation, blocking, asynchronous and awaited, on arrays and on lists of them."""

import asyncio
import contextlib
import unittest

import numpy

import ringpipe
from tensor import Tensor

RANKS = 4
OPS = {
    "sum": lambda all_ranks: all_ranks.sum(axis=0),
    "min": lambda all_ranks: all_ranks.min(axis=0),
    "max": lambda all_ranks: all_ranks.max(axis=0),
    "prod": lambda all_ranks: all_ranks.prod(axis=0),
    "average": lambda all_ranks: all_ranks.sum(axis=0) / RANKS,
}
TYPES = ["float16", "float32", "float64", "int8", "int32", "int64", "uint8", "uint32", "uint64"]
# Nothing, one element, and short calls; several sub-chunks, which take long to compare.
COUNTS = [0, 1, 1000]
LONG = 100_003


def counts_of(kind):
    return [*COUNTS, LONG] if kind in ("float32", "int8") else COUNTS


def values(rank, count):
    """Small whole numbers, exact in every type, also when they are multiplied."""
    return numpy.random.default_rng(rank).integers(1, 4, count).astype(float)


def of_all(count):
    return numpy.stack([values(rank, count) for rank in range(RANKS)])


def to_bits(numbers):
    """float64 to the bits of bfloat16, exact."""
    return (numbers.astype(numpy.float32).view(numpy.uint32) >> 16).astype(numpy.uint16)


def truncated(numbers, kind):
    return numpy.trunc(numbers).astype(kind) if numpy.dtype(kind).kind in "iu" else \
        numbers.astype(kind)


def both(comm, name, *args, **keywords):
    """The blocking call's result, and the asynchronous one's; `args` are functions
    that make fresh arguments."""
    yield getattr(comm, name)(*[make() for make in args],
                              **{key: make() for key, make in keywords.items()})
    request = getattr(comm, "i" + name)(*[make() for make in args],
                                        **{key: make() for key, make in keywords.items()})
    result = request.wait(60)
    assert request.done()
    yield result


def always(value):
    return lambda: value


def expect(found, expected, *context):
    numpy.testing.assert_array_equal(found, expected, err_msg=str(context), strict=True)


@contextlib.contextmanager
def joined():
    with ringpipe.Communicator() as comm:
        yield comm


def check_reductions():
    with joined() as comm:
        for kind in TYPES:
            for count in counts_of(kind):
                mine = values(comm.rank, count).astype(kind)
                for op, reduce in OPS.items():
                    expected = truncated(reduce(of_all(count)), kind)
                    for found in both(comm, "allreduce", mine.copy, always(op)):
                        expect(found, expected, "allreduce", kind, count, op)
                    out = numpy.empty_like(mine)
                    assert comm.allreduce(mine, op, out=out) is out
                    expect(out, expected, "allreduce out", kind, count, op)
                    expect(mine, values(comm.rank, count).astype(kind), "x is as it was")
                    for found in both(comm, "reduce", mine.copy, always(op), always(2)):
                        if comm.rank == 2:
                            expect(found, expected, "reduce", kind, count, op)
                        else:
                            assert found is None


def check_parts():
    with joined() as comm:
        for kind in TYPES:
            for count in counts_of(kind):
                everything = of_all(RANKS * count)
                mine = everything[comm.rank].astype(kind).reshape(RANKS * count, 1)
                part = slice(comm.rank * count, (comm.rank + 1) * count)
                for op, reduce in OPS.items():
                    expected = truncated(reduce(everything)[part], kind).reshape(count, 1)
                    for found in both(comm, "reduce_scatter", always(mine), always(op)):
                        expect(found, expected, "reduce_scatter", kind, count, op)
                for found in both(comm, "alltoall", always(mine)):
                    expect(found[:, 0], numpy.concatenate([one[part] for one in everything])
                           .astype(kind), "alltoall", kind, count)
                joined_parts = of_all(count).astype(kind).reshape(RANKS * count)
                own = values(comm.rank, count).astype(kind)
                for found in both(comm, "allgather", always(own)):
                    expect(found, joined_parts, "allgather", kind, count)
                for found in both(comm, "gather", always(own), always(1)):
                    if comm.rank == 1:
                        expect(found, joined_parts, "gather", kind, count)
                    else:
                        assert found is None
                whole = joined_parts if comm.rank == 3 else None
                for found in both(comm, "scatter", always(whole), always(3),
                                  out=lambda kind=kind, count=count: numpy.empty(count, kind)):
                    expect(found, joined_parts[part], "scatter", kind, count)
                for found in both(comm, "broadcast", own.copy, always(1)):
                    expect(found, values(1, count).astype(kind), "broadcast", kind, count)
        for found in both(comm, "barrier"):
            assert found is None


def check_bfloat16():
    with joined() as comm:
        for op, reduce in OPS.items():
            found = comm.allreduce(to_bits(values(comm.rank, 1000)), op, dtype="bfloat16")
            expect(found, to_bits(reduce(of_all(1000))), "bfloat16", op)
        tensor = Tensor(to_bits(values(comm.rank, 1000)), code=4)
        comm.allreduce(tensor)
        expect(tensor.array, to_bits(of_all(1000).sum(axis=0)), "bfloat16 by DLPack")
        assert tensor.releases == 1, tensor.releases
        half = Tensor(values(comm.rank, 7).astype("float16"), code=2)
        comm.iallreduce(half, out=half).wait()
        expect(half.array, of_all(7).sum(axis=0).astype("float16"), "float16 by DLPack")
        assert half.releases == 2, half.releases


def check_counts():
    counts = [3, 0, 1000, 17]
    ends = numpy.cumsum([0] + counts)
    with joined() as comm:
        part = slice(ends[comm.rank], ends[comm.rank + 1])
        everything = of_all(ends[-1]).astype("float32")
        own = everything[0][part]
        for found in both(comm, "allgather", always(own), counts=always(counts)):
            expect(found, everything[0], "allgather")
        for found in both(comm, "reduce_scatter", always(everything[comm.rank]),
                          counts=always(numpy.array(counts))):
            expect(found, everything.sum(axis=0)[part], "reduce_scatter")
        for found in both(comm, "gather", always(own), counts=always(counts)):
            expect(found, everything[0] if comm.rank == 0 else None, "gather")
        out = numpy.empty(counts[comm.rank], "float32")
        comm.scatter(everything[0] if comm.rank == 0 else None, counts=counts, out=out)
        expect(out, own, "scatter")


def check_lists():
    with joined() as comm:
        pieces = [values(comm.rank, count).astype("float32") for count in (5, 0, 3000, 1)]
        expected = [of_all(count).sum(axis=0).astype("float32") for count in (5, 0, 3000, 1)]
        for found in both(comm, "allreduce", lambda: [piece.copy() for piece in pieces]):
            for one, other in zip(found, expected, strict=True):
                expect(one, other, "list")
        out = numpy.empty(3006, "float32")
        comm.allreduce(tuple(pieces), out=out)
        expect(out, numpy.concatenate(expected), "from a tuple into an array")
        parts = [numpy.empty(1503 * RANKS, "float32"), numpy.empty(1503 * RANKS, "float32")]
        comm.allgather(pieces, out=parts)
        expect(numpy.concatenate(parts)[:5], values(0, 5).astype("float32"), "allgather")


def check_in_place():
    with joined() as comm:
        whole = of_all(40).sum(axis=0)
        x = values(comm.rank, 40)
        own = x[comm.rank * 10:(comm.rank + 1) * 10]
        comm.reduce_scatter(x, out=own)
        expect(own, whole[comm.rank * 10:(comm.rank + 1) * 10], "reduce_scatter")
        comm.allgather(own, out=x)
        expect(x, whole, "allgather")


def check_other_buffers():
    import array  # pylint: disable=import-outside-toplevel
    with joined() as comm:
        for x in (array.array("i", [comm.rank, 1]),
                  memoryview(bytearray([comm.rank, 1])),
                  numpy.array([comm.rank, 1], "<i8"),
                  comm.allocate(2, "float32")):
            if isinstance(x, numpy.ndarray):
                x[:] = [comm.rank, 1]
            comm.allreduce(x)
            assert list(x) == [6, 4], list(x)
        # The root's may be read-only.
        data = b"from the root" if comm.rank == 0 else bytearray(13)
        assert bytes(comm.broadcast(data)) == b"from the root"
        zero = numpy.array(float(comm.rank))
        assert comm.allreduce(zero) == 6
        expect(comm.allgather(zero), numpy.array([6.0] * 4), "of no dimension")


def check_await():
    async def main(comm, comm2):
        a = numpy.full(1 << 18, comm.rank, "float32")
        first, second = comm.iallreduce(a), comm.iallgather(numpy.array([comm.rank]))
        parts, total = await asyncio.gather(awaited(second), awaited(first))
        expect(parts, numpy.arange(RANKS), "allgather")
        assert total is a and (a == 6).all()
        assert await first is a  # again
        for _ in range(300):  # more than there are descriptors to spare
            await comm.iallreduce(a[:2])
        if comm.rank == 0:  # does not end while the others wait for word of it
            last = comm.ibarrier()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.1):
                    await last
            assert not last.done()
            comm2.barrier()
            await last
        else:
            comm2.barrier()
            await comm.ibarrier()

    async def awaited(request):
        return await request

    with joined() as comm, ringpipe.Communicator(job_id="second") as comm2:
        asyncio.run(main(comm, comm2))


class CollectivesTest(unittest.TestCase):

    def test_reductions_of_every_type_and_operation(self):
        ringpipe.spawn(check_reductions, RANKS)

    def test_parts_of_ranks_in_every_type(self):
        ringpipe.spawn(check_parts, RANKS)

    def test_bfloat16_as_bits_and_by_dlpack(self):
        ringpipe.spawn(check_bfloat16, RANKS)

    def test_parts_that_differ_in_length(self):
        ringpipe.spawn(check_counts, RANKS)

    def test_a_list_of_arrays_is_one_message(self):
        ringpipe.spawn(check_lists, RANKS)

    def test_in_place_where_a_part_is_the_ranks_own(self):
        ringpipe.spawn(check_in_place, RANKS)

    def test_whatever_has_the_buffer_protocol(self):
        ringpipe.spawn(check_other_buffers, RANKS)

    def test_requests_can_be_awaited(self):
        ringpipe.spawn(check_await, RANKS)


if __name__ == "__main__":
    unittest.main()
