"""A call under way."""

from __future__ import annotations

import asyncio
import typing
from collections.abc import Generator

from ringpipe import _native

Result = typing.TypeVar("Result")


class Request(typing.Generic[Result]):
    """A call that `Communicator.iallreduce`, ... has started. Thread-safe.

    Wait for it by `wait()`, or in an event loop by `await`; both give what the
    blocking call returns. The arrays are the call's until it ends: neither write
    to them, nor read what it writes. Dropping the request does not end the call.
    """

    __slots__ = ("_native", "_result", "_future")

    def __init__(self, native: _native.Request, result: Result) -> None:
        self._native = native
        self._result = result
        self._future: asyncio.Future[None] | None = None

    def done(self) -> bool:
        """Whether the call has ended."""
        return self._native.done()

    def wait(self, timeout: float | None = None) -> Result:
        """Waits for the end of the call, and returns its result or raises its error.

        `timeout` is in seconds; None has no limit but the call's own. Raises
        `WaitOver` if the call has not ended by then; it runs on, and can be waited
        for again. The same holds after a KeyboardInterrupt.
        """
        self._native.wait(timeout)
        return self._result

    def fileno(self) -> int:
        """A descriptor that becomes readable when the call has ended, for select
        and event loops. It is the request's; do not read from it."""
        return self._native.fileno()

    def __await__(self) -> Generator[typing.Any, None, Result]:
        if not self._native.done():
            # Whoever stops waiting leaves the others waiting.
            yield from asyncio.shield(self._end()).__await__()
        return self.wait()

    def _end(self) -> asyncio.Future[None]:
        """The end of the call as a future of the running loop."""
        loop = asyncio.get_running_loop()
        if self._future is None or self._future.get_loop() is not loop:
            future = loop.create_future()
            descriptor = self.fileno()
            keep_alive = self._native

            def ended() -> None:
                # By keep_alive the descriptor is the call's until here.
                loop.remove_reader(descriptor)
                if not future.done():
                    future.set_result(None)
                keep_alive.done()

            loop.add_reader(descriptor, ended)
            self._future = future
        return self._future
