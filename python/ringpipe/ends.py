"""Closes what is open when Python ends: later, the threads that are in calls cannot
come back to Python."""

from __future__ import annotations

import atexit
import contextlib
import multiprocessing
import multiprocessing.util
import os
import typing
import weakref


class Closable(typing.Protocol):
    """What has an end of its own, which does nothing the second time."""

    def close(self) -> None:
        """Ends it."""


_open: weakref.WeakSet[Closable] = weakref.WeakSet()
# The process whose end closes what is open.
_closing_process: int | None = None


def _close_all() -> None:
    with contextlib.ExitStack() as stack:  # all, also where one raises
        for closable in list(_open):
            stack.callback(closable.close)


def close_at_end(closable: Closable) -> None:
    """Has this process close it before Python ends, if it still lives then."""
    global _closing_process  # pylint: disable=global-statement
    if _closing_process is None:
        atexit.register(_close_all)
    if _closing_process != os.getpid() and multiprocessing.parent_process() is not None:
        # A process that multiprocessing has forked ends without atexit.
        multiprocessing.util.Finalize(None, _close_all, exitpriority=0)
    _closing_process = os.getpid()
    _open.add(closable)


def forget(closable: Closable) -> None:
    """Of what has been closed."""
    _open.discard(closable)
