"""An exception for each status of ringpipe.h."""

from __future__ import annotations

from collections.abc import Sequence


class RingpipeError(Exception):
    """What every call raises that fails. Its text says what to do.

    All but InvalidArgument and WaitOver are final for the communicator: every
    later call raises the first reason. Close it then, and make a new one.
    """


class InvalidArgument(RingpipeError, ValueError):
    """An argument or a variable is wrong. The call has not begun."""


class Mismatch(RingpipeError):
    """Two ranks made different calls, or have different settings."""


class Timeout(RingpipeError, TimeoutError):
    """A call, or the creation of a communicator, did not end in its time."""


class PeerLost(RingpipeError):
    """Another rank has ended, or is out of reach.

    `ranks` are those that this rank knew to be lost, in ascending order.
    """

    def __init__(self, message: str, ranks: Sequence[int] = ()) -> None:
        super().__init__(message)
        self.ranks: tuple[int, ...] = tuple(ranks)


class Aborted(RingpipeError):
    """A rank aborted, interrupted a call, or closed the communicator meanwhile."""


class Unavailable(RingpipeError):
    """Something that is needed is not there: a device, a library, a port."""


class ResourceExhausted(RingpipeError):
    """A limit of the system; the text names it."""


class PermissionDenied(RingpipeError):
    """The system, or another rank, refused it."""


class DeviceError(RingpipeError):
    """A device failed."""


class InternalError(RingpipeError):
    """ringpipe has a bug."""


class MemoryHeld(RingpipeError):
    """A call failed, and a device or a stopped peer may still write its arrays.

    They are kept for good. Do not use them.
    """


class WaitOver(RingpipeError, TimeoutError):
    """A wait for a request ended before the call did. The call runs on."""


class RankFailed(RingpipeError):
    """A process of `spawn` ended without an exception of its own: by a signal, or
    by os._exit."""

    def __init__(self, message: str, rank: int = -1) -> None:
        super().__init__(message)
        self.rank = rank


_BY_STATUS: dict[int, type[RingpipeError]] = {
    1: InvalidArgument,
    2: Mismatch,
    3: Timeout,
    4: PeerLost,
    5: Aborted,
    6: Unavailable,
    7: ResourceExhausted,
    8: PermissionDenied,
    9: DeviceError,
    10: InternalError,
    11: MemoryHeld,
    12: WaitOver,
}

_ADVICE = ("close() the communicator and make a new one, on every rank: "
           "ringpipe.Communicator(...)")
# By what had happened to the communicator before the call.
_BEFORE = {
    1: f"; it failed in an earlier call: {_ADVICE}",
    2: f"; an earlier call was interrupted (Ctrl-C): {_ADVICE}",
}


def make(status: int, message: str, ranks: tuple[int, ...], before: int) -> RingpipeError:
    """The exception of a ringpipe_status; the extension calls this."""
    message += _BEFORE.get(before, "")
    kind = _BY_STATUS.get(status, InternalError)
    if kind is PeerLost:
        return PeerLost(message, ranks)
    return kind(message)
