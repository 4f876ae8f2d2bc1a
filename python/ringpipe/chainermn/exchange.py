"""Bytes of any length between the ranks of a communicator."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy

import ringpipe
from ringpipe.errors import InternalError, InvalidArgument

# Where all messages are this short, one call suffices: the block has the length,
# and as much of the message as there is room for.
_BLOCK = 256
_LENGTH = numpy.dtype("<i8")
_ROOM = _BLOCK - _LENGTH.itemsize

# The first byte of a message.
_MESSAGE = b"+"
_ERROR = b"-"

Make = Callable[[], bytes]


def _block(message: bytes) -> numpy.ndarray:
    block = numpy.zeros(_BLOCK, numpy.uint8)
    block[:_LENGTH.itemsize].view(_LENGTH)[0] = len(message)
    head = message[:_ROOM]
    block[_LENGTH.itemsize:_LENGTH.itemsize + len(head)] = numpy.frombuffer(head, numpy.uint8)
    return block


def _length(block: numpy.ndarray) -> int:
    length = int(block[:_LENGTH.itemsize].view(_LENGTH)[0])
    if length < 1:
        raise InternalError(f"a rank announced a message of {length} bytes")
    return length


def _head(block: numpy.ndarray, length: int) -> bytes:
    return block[_LENGTH.itemsize:_LENGTH.itemsize + min(length, _ROOM)].tobytes()


def _rest(length: int) -> int:
    """How much of a message does not fit in its block."""
    return max(0, length - _ROOM)


def _told(error: Exception) -> bytes:
    """What the others are told of it."""
    try:
        text = str(error)
    except Exception:  # pylint: disable=broad-exception-caught
        text = f"a {type(error).__name__}, which has no text"
    return _ERROR + text.encode("utf-8", "backslashreplace")


def _prepared(make: Make) -> tuple[bytes, Exception | None]:
    """The message, or what tells the others that there is none."""
    try:
        return _MESSAGE + make(), None
    except Exception as error:  # pylint: disable=broad-exception-caught
        return _told(error), error


def _opened(message: bytes, rank: int) -> bytes:
    if message[:1] == _ERROR:
        raise InvalidArgument(f"rank {rank} has a wrong argument in this call: "
                              f"{message[1:].decode(errors='replace')}")
    return message[1:]


class Exchange:
    """Passes messages between the ranks of a communicator.

    A message is made by a function. If that raises on one rank, each rank that
    waits for the message raises too, with the same text.
    """

    def __init__(self, communicator: ringpipe.Communicator) -> None:
        self._communicator = communicator
        self._rank = communicator.rank
        self._size = communicator.size

    def allgather(self, make: Make) -> list[bytes]:
        """The messages of all ranks, by rank."""
        return self._gather(make, None)

    def gather(self, make: Make, root: int) -> list[bytes] | None:
        """The same on rank `root`; None elsewhere."""
        messages = self._gather(make, root)
        return messages if self._rank == root else None

    def broadcast(self, make: Make, root: int) -> bytes:
        """The message of rank `root`; `make` is called there alone."""
        message, error = b"", None
        block = numpy.empty(_BLOCK, numpy.uint8)
        if self._rank == root:
            message, error = _prepared(make)
            block = _block(message)
        self._communicator.broadcast(block, root)
        length = _length(block)
        if _rest(length) > 0:
            tail = message[_ROOM:] if self._rank == root else bytearray(_rest(length))
            self._communicator.broadcast(tail, root)
            message = _head(block, length) + bytes(tail)
        if error is not None:
            raise error
        return _opened(message or _head(block, length), root)

    def scatter(self, make: Callable[[], Sequence[bytes]], root: int) -> bytes:
        """This rank's of the messages of rank `root`, where there is one for each."""
        messages: Sequence[bytes] = []
        error = None
        lengths = numpy.empty(self._size, numpy.int64)
        if self._rank == root:
            try:
                messages = [_MESSAGE + message for message in make()]
            except Exception as caught:  # pylint: disable=broad-exception-caught
                error = caught
                messages = [_told(error)] * self._size
            lengths[:] = [len(message) for message in messages]
        self._communicator.broadcast(lengths, root)
        mine = bytearray(int(lengths[self._rank]))
        self._communicator.scatter(messages or None, root, out=mine, counts=lengths)
        if error is not None:
            raise error
        return _opened(bytes(mine), root)

    def _gather(self, make: Make, root: int | None) -> list[bytes]:
        message, error = _prepared(make)
        blocks = self._communicator.allgather(_block(message)).reshape(self._size, _BLOCK)
        lengths = [_length(block) for block in blocks]
        rests = [_rest(length) for length in lengths]
        tails = numpy.empty(0, numpy.uint8)
        if any(rests):
            if root is None or self._rank == root:
                tails = numpy.empty(sum(rests), numpy.uint8)
            if root is None:
                self._communicator.allgather(message[_ROOM:], out=tails, counts=rests)
            else:
                self._communicator.gather(message[_ROOM:], root, out=tails, counts=rests)
        if error is not None:
            raise error
        ends = numpy.cumsum(rests)
        return [_opened(_head(block, length) + tails[end - rest:end].tobytes(), rank)
                for rank, (block, length, rest, end) in enumerate(
                    zip(blocks, lengths, rests, ends))]
