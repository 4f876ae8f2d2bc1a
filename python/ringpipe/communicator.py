"""The communicator: this process's place among the ranks, and their calls."""

from __future__ import annotations

import types
import typing
import warnings
from collections.abc import Sequence

from ringpipe import _native, arrays, ends
from ringpipe.data_types import Collective, DataType, Op
from ringpipe.errors import InvalidArgument
from ringpipe.request import Request

if typing.TYPE_CHECKING:
    import numpy.typing

    NDArray = numpy.typing.NDArray[typing.Any]

# A numpy array, or whatever has the buffer protocol, DLPack or
# __cuda_array_interface__; or a list of them.
Array = typing.Any
In = typing.TypeVar("In")

# As plain numbers, which the extension reads faster.
_ALL_REDUCE = int(Collective.ALL_REDUCE)
_REDUCE_SCATTER = int(Collective.REDUCE_SCATTER)
_ALL_GATHER = int(Collective.ALL_GATHER)
_BROADCAST = int(Collective.BROADCAST)
_BARRIER = int(Collective.BARRIER)
_REDUCE = int(Collective.REDUCE)
_GATHER = int(Collective.GATHER)
_SCATTER = int(Collective.SCATTER)
_ALL_TO_ALL = int(Collective.ALL_TO_ALL)
_SUM = int(Op.SUM)


class Store(typing.Protocol):
    """Where the ranks of one job find each other: `Communicator(store=)`.

    It carries where rank 0 listens, and a new secret: who reads it can join the job.
    """

    def put(self, key: str, value: bytes) -> object:
        """Sets `key`; called on rank 0, once."""

    def get(self, key: str, timeout: float) -> bytes | None:
        """Waits for `key`, for at most `timeout` seconds (0: looks); None: nobody has
        put it so far. Called on the other ranks, again and again."""


class Communicator:
    """Joins the other ranks; makes calls with them until it is closed.

    Without arguments, the variables of the launcher say rank and size (mpirun,
    srun, torchrun, `ringpipe.spawn`, or RINGPIPE_RANK, RINGPIPE_SIZE and
    RINGPIPE_ROOT). With `rank` and `size`, those hold. `root` is where the ranks
    meet: "unix:@any-name" on one host, "HOST:PORT" of rank 0's on several, which
    also need one `secret` that nobody else knows. What is None, the variables of
    docs/reference.md say. `timeout` is how long a call may take in seconds
    (math.inf: no limit), `join_timeout` how long the creation. Where a framework has a
    place with keys and values of its own, `store` is that, in place of a root that all
    ranks must know.

    All ranks make the same calls in the same order. A communicator is thread-safe;
    threads that make calls must agree on an order themselves. A child of fork needs
    one of its own.

    In every call:

    - `x` and `out` are numpy arrays, or whatever has the buffer protocol, DLPack or
      `__cuda_array_interface__`, in C order, in host memory or that of one CUDA device.
      Or lists of them, of one type, which are one message: their elements follow each
      other.
    - `op` is "sum", "min", "max", "prod" or "average", or an `Op`.
    - `counts` are elements by rank, the same on all ranks, where the parts of the
      ranks differ in length.
    - `timeout` is in seconds: how long this call may take.
    - `dtype` is a `DataType` or its name, if the array cannot say it: numpy has no
      bfloat16, so pass the bits as uint16 and dtype="bfloat16".
    - `stream` is the number of a CUDA stream (1: the legacy default one, 2: the
      thread's, others are handles): the call begins when the device has done what that
      stream was given before. None: what the arrays say they are ready after. -1: they
      are ready, and nothing is waited for. When the call has ended, its result is there
      for all streams.

    Each has a twin that begins with i (`iallreduce`, ...), which returns a `Request`
    at once.
    """

    def __init__(self, rank: int | None = None, size: int | None = None,
                 root: str | None = None, *, job_id: str | None = None,
                 secret: str | None = None, host_id: str | None = None,
                 timeout: float | None = None, join_timeout: float | None = None,
                 store: Store | None = None) -> None:
        if (rank is None) != (size is None):
            raise InvalidArgument("rank and size: give both, or none and start the ranks with "
                                  "a launcher or ringpipe.spawn")
        self._native = _native.Communicator(rank, size, root, job_id, secret, host_id, timeout,
                                            join_timeout, store)
        self._rank = self._native.rank()
        self._size = self._native.size()
        self._run = self._native.run
        if type(self).allreduce is Communicator.allreduce:
            # The same without a function in Python: it is called most often.
            setattr(self, "allreduce", self._native.allreduce)
        ends.close_at_end(self)

    @property
    def rank(self) -> int:
        """This process's number among the ranks, from 0."""
        return self._rank

    @property
    def size(self) -> int:
        """How many ranks there are."""
        return self._size

    @property
    def closed(self) -> bool:
        """Whether close() has been called."""
        return self._native.is_closed()

    def close(self) -> None:
        """Ends the communicator; does nothing the second time.

        Calls under way end with `Aborted`, in other threads too. Otherwise it waits
        for the other ranks to close theirs, for 2 s. Arrays of `allocate` stay:
        while there are any, the communicator is held for them, and other ranks
        learn of the end when the last one has gone.
        """
        self._native.close()
        ends.forget(self)

    def abort(self, reason: str) -> None:
        """Fails the communicator on every rank, whose calls raise `Aborted`."""
        self._native.abort(reason)

    def check(self) -> None:
        """Raises the error for which the communicator has failed, if it has."""
        self._native.check()

    def __enter__(self) -> Communicator:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 traceback: types.TracebackType | None) -> None:
        self.close()

    def __del__(self) -> None:
        native = getattr(self, "_native", None)
        if native is not None and not native.is_closed():
            warnings.warn(f"{self!r} was not closed", ResourceWarning, source=self)

    def __repr__(self) -> str:
        state = ", closed" if self.closed else ""
        return f"<ringpipe.Communicator rank {self._rank} of {self._size}{state}>"

    def allocate(self, shape: int | Sequence[int],
                 dtype: numpy.typing.DTypeLike = "float32") -> NDArray:
        """A new array of zeros in memory of the communicator's, which other ranks of
        this host read and write where it lies: calls on it are faster.

        It may be used as long as it lives, also after close() and after a failure,
        but not in a child of fork.
        """
        import numpy  # pylint: disable=import-outside-toplevel
        kind: numpy.dtype[typing.Any] = numpy.dtype(dtype)
        shape = tuple(shape) if isinstance(shape, Sequence) else (int(shape),)
        count = 1
        for length in shape:
            count *= int(length)
        if count < 0 or kind.hasobject:
            raise InvalidArgument(f"allocate: no array has the shape {shape} and the type {kind}")
        if count == 0:
            return numpy.empty(shape, kind)
        memory: typing.Any = self._native.allocate(count * kind.itemsize)
        return numpy.frombuffer(memory, kind, count).reshape(shape)

    # --- Calls that return when they have ended ------------------------------------

    def allreduce(self, x: In, op: str | Op = "sum", *, out: Array = None,
                  timeout: float | None = None, dtype: str | DataType | None = None,
                  stream: int | None = None) -> In:
        """Reduces `x` over all ranks, into `out`, or in place. Returns the result."""
        self._run(_ALL_REDUCE, x, out, op, 0, None, timeout, dtype, stream)
        return x if out is None else typing.cast("In", out)

    def reduce_scatter(self, x: Array, op: str | Op = "sum", *, out: Array = None,
                       counts: Sequence[int] | None = None, timeout: float | None = None,
                       dtype: str | DataType | None = None, stream: int | None = None) -> Array:
        """Reduces `x`, which has a part for each rank, and returns this rank's part:
        `out`, or a new array of 1/size of `x` along its first axis. In place, `out`
        is the part of `x` itself."""
        if out is None:
            out = arrays.scattered(x, self._rank, self._size, counts)
        self._run(_REDUCE_SCATTER, x, out, op, 0, counts, timeout, dtype, stream)
        return out

    def allgather(self, x: Array, *, out: Array = None, counts: Sequence[int] | None = None,
                  timeout: float | None = None,
                  dtype: str | DataType | None = None, stream: int | None = None) -> Array:
        """Returns the `x` of all ranks by rank: `out`, or a new array, joined along
        the first axis. In place, `x` is this rank's part of `out`."""
        if out is None:
            out = arrays.gathered(x, self._size, counts)
        self._run(_ALL_GATHER, x, out, _SUM, 0, counts, timeout, dtype, stream)
        return out

    def broadcast(self, x: In, root: int = 0, *, timeout: float | None = None,
                  dtype: str | DataType | None = None, stream: int | None = None) -> In:
        """Makes `x` on every rank what it is on rank `root`. Returns `x`."""
        self._run(_BROADCAST, x, None, _SUM, root, None, timeout, dtype, stream)
        return x

    def reduce(self, x: Array, op: str | Op = "sum", root: int = 0, *, out: Array = None,
               timeout: float | None = None,
               dtype: str | DataType | None = None, stream: int | None = None) -> Array:
        """Reduces `x` over all ranks, on rank `root`: into `out`, or in place. Returns
        the result there, and None elsewhere, where `out` is not used."""
        self._run(_REDUCE, x, out, op, root, None, timeout, dtype, stream)
        if self._rank != root:
            return None
        return x if out is None else out

    def gather(self, x: Array, root: int = 0, *, out: Array = None,
               counts: Sequence[int] | None = None, timeout: float | None = None,
               dtype: str | DataType | None = None, stream: int | None = None) -> Array:
        """As `allgather`, on rank `root`; None elsewhere, where `out` is not used."""
        if self._rank != root:
            out = None
        elif out is None:
            out = arrays.gathered(x, self._size, counts)
        self._run(_GATHER, x, out, _SUM, root, counts, timeout, dtype, stream)
        return out

    def scatter(self, x: Array, root: int = 0, *, out: Array = None,
                counts: Sequence[int] | None = None, timeout: float | None = None,
                dtype: str | DataType | None = None, stream: int | None = None) -> Array:
        """Gives each rank its part of the `x` of rank `root`, in `out`, and returns it.

        Other ranks pass None for `x`, and need `out`. On the root, `out` may be left
        out: then it is a new array of 1/size of `x` along its first axis.
        """
        if self._rank == root and out is None:
            out = arrays.scattered(x, self._rank, self._size, counts)
        self._run(_SCATTER, x, out, _SUM, root, counts, timeout, dtype, stream)
        return out

    def alltoall(self, x: Array, *, out: Array = None, timeout: float | None = None,
                 dtype: str | DataType | None = None, stream: int | None = None) -> Array:
        """Sends part r of `x` to rank r. Returns what came, by rank: `out`, or a new
        array like `x`. All parts are equally long."""
        if out is None:
            out = arrays.same(x)
        self._run(_ALL_TO_ALL, x, out, _SUM, 0, None, timeout, dtype, stream)
        return out

    def barrier(self, *, timeout: float | None = None, stream: int | None = None) -> None:
        """Returns after every rank has called it."""
        self._run(_BARRIER, None, None, _SUM, 0, None, timeout, None, stream)

    # --- The same, at once: docs are those of the twins -------------------------------

    def _start(self, result: In, collective: int, x: Array, out: Array, op: str | int,
               root: int, counts: Sequence[int] | None, timeout: float | None,
               dtype: str | DataType | None, stream: int | None) -> Request[In]:
        return Request(self._native.start(collective, x, out, op, root, counts, timeout, dtype,
                                          stream), result)

    def iallreduce(self, x: In, op: str | Op = "sum", *, out: Array = None,
                   timeout: float | None = None,
                   dtype: str | DataType | None = None, stream: int | None = None) -> Request[In]:
        """Starts `allreduce`."""
        return self._start(x if out is None else out, _ALL_REDUCE, x, out, op, 0, None, timeout,
                           dtype, stream)

    def ireduce_scatter(self, x: Array, op: str | Op = "sum", *, out: Array = None,
                        counts: Sequence[int] | None = None, timeout: float | None = None,
                        dtype: str | DataType | None = None,
                        stream: int | None = None) -> Request[Array]:
        """Starts `reduce_scatter`."""
        if out is None:
            out = arrays.scattered(x, self._rank, self._size, counts)
        return self._start(out, _REDUCE_SCATTER, x, out, op, 0, counts, timeout, dtype, stream)

    def iallgather(self, x: Array, *, out: Array = None, counts: Sequence[int] | None = None,
                   timeout: float | None = None,
                   dtype: str | DataType | None = None,
                   stream: int | None = None) -> Request[Array]:
        """Starts `allgather`."""
        if out is None:
            out = arrays.gathered(x, self._size, counts)
        return self._start(out, _ALL_GATHER, x, out, _SUM, 0, counts, timeout, dtype, stream)

    def ibroadcast(self, x: In, root: int = 0, *, timeout: float | None = None,
                   dtype: str | DataType | None = None, stream: int | None = None) -> Request[In]:
        """Starts `broadcast`."""
        return self._start(x, _BROADCAST, x, None, _SUM, root, None, timeout, dtype, stream)

    def ireduce(self, x: Array, op: str | Op = "sum", root: int = 0, *, out: Array = None,
                timeout: float | None = None,
                dtype: str | DataType | None = None, stream: int | None = None) -> Request[Array]:
        """Starts `reduce`."""
        result = None if self._rank != root else x if out is None else out
        return self._start(result, _REDUCE, x, out, op, root, None, timeout, dtype, stream)

    def igather(self, x: Array, root: int = 0, *, out: Array = None,
                counts: Sequence[int] | None = None, timeout: float | None = None,
                dtype: str | DataType | None = None, stream: int | None = None) -> Request[Array]:
        """Starts `gather`."""
        if self._rank != root:
            out = None
        elif out is None:
            out = arrays.gathered(x, self._size, counts)
        return self._start(out, _GATHER, x, out, _SUM, root, counts, timeout, dtype, stream)

    def iscatter(self, x: Array, root: int = 0, *, out: Array = None,
                 counts: Sequence[int] | None = None, timeout: float | None = None,
                 dtype: str | DataType | None = None, stream: int | None = None) -> Request[Array]:
        """Starts `scatter`."""
        if self._rank == root and out is None:
            out = arrays.scattered(x, self._rank, self._size, counts)
        return self._start(out, _SCATTER, x, out, _SUM, root, counts, timeout, dtype, stream)

    def ialltoall(self, x: Array, *, out: Array = None, timeout: float | None = None,
                  dtype: str | DataType | None = None, stream: int | None = None) -> Request[Array]:
        """Starts `alltoall`."""
        if out is None:
            out = arrays.same(x)
        return self._start(out, _ALL_TO_ALL, x, out, _SUM, 0, None, timeout, dtype, stream)

    def ibarrier(self, *, timeout: float | None = None,
                 stream: int | None = None) -> Request[None]:
        """Starts `barrier`."""
        return self._start(None, _BARRIER, None, None, _SUM, 0, None, timeout, None,
                           stream)
