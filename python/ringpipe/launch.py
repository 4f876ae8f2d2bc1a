"""Ranks without a launcher: processes of this one, on this host."""

from __future__ import annotations

import dataclasses
import multiprocessing
import multiprocessing.connection
import multiprocessing.process
import multiprocessing.reduction
import os
import re
import signal
import threading
import time
import traceback
import typing
import uuid
from collections.abc import Callable, Iterable

from ringpipe.errors import Aborted, InvalidArgument, PeerLost, RankFailed, Timeout

# How long the other ranks may go on after the first failure. It ends their calls
# within 2 s.
_GRACE_S = 4.0
_KILL_S = 1.0
# What would make the ranks part of somebody else's job.
_LAUNCHERS = re.compile(r"RINGPIPE_(RANK|SIZE|ROOT|JOB_ID)$")


@dataclasses.dataclass
class _Failure:
    """How a rank failed."""

    rank: int
    error: BaseException
    text: str = ""  # the traceback

    def is_consequence(self) -> bool:
        """Whether another rank's failure may be the cause."""
        return isinstance(self.error, (PeerLost, Aborted, Timeout))


class _RemoteTraceback(Exception):
    """Shows where in a rank an exception was raised; it is its cause here."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


def _end_with(parent: multiprocessing.process.BaseProcess) -> None:
    multiprocessing.connection.wait([parent.sentinel])
    os._exit(1)


def _rank_main(function: Callable[..., typing.Any], args: tuple[typing.Any, ...],
               environment: dict[str, str],
               pipe: multiprocessing.connection.Connection) -> None:
    """What a rank's process runs."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent,), name="ringpipe-parent",
                         daemon=True).start()
    for name in [name for name in os.environ if _LAUNCHERS.match(name)]:
        del os.environ[name]
    os.environ.update(environment)
    try:
        outcome: tuple[bool, typing.Any, str] = (True, function(*args), "")
    except SystemExit as error:
        if error.code not in (None, 0):
            _send(pipe, (False, error, traceback.format_exc()))
            raise
        outcome = (True, None, "")
    except BaseException as error:  # pylint: disable=broad-exception-caught
        outcome = (False, error, traceback.format_exc())
    _send(pipe, outcome)


def _send(pipe: multiprocessing.connection.Connection,
          outcome: tuple[bool, typing.Any, str]) -> None:
    """Sends what can be sent of it."""
    done, value, text = outcome
    try:
        message = multiprocessing.reduction.ForkingPickler.dumps(outcome)
        if not done:  # exceptions with arguments of their own often cannot be made again
            multiprocessing.reduction.ForkingPickler.loads(message)
    except Exception as error:  # pylint: disable=broad-exception-caught
        what = "what the function returned" if done else "the exception of the rank"
        outcome = (False, RuntimeError(f"{what} cannot be pickled ({error}): {value!r}"),
                   text or f"{error}")
        message = multiprocessing.reduction.ForkingPickler.dumps(outcome)
    pipe.send_bytes(message)


class _Rank:
    """A rank's process, seen from here."""

    def __init__(self, context: multiprocessing.context.SpawnContext, rank: int, size: int,
                 root: str, function: Callable[..., typing.Any],
                 args: tuple[typing.Any, ...]) -> None:
        self.rank = rank
        self.result: typing.Any = None
        self.failure: _Failure | None = None
        self._is_read = False
        self._is_silent = False
        environment = {"RINGPIPE_RANK": str(rank), "RINGPIPE_SIZE": str(size),
                       "RINGPIPE_ROOT": root}
        self._pipe, theirs = context.Pipe(duplex=False)
        self.process = context.Process(target=_rank_main,
                                       args=(function, args, environment, theirs),
                                       name=f"ringpipe-rank-{rank}")
        try:
            self.process.start()
        finally:
            theirs.close()

    @property
    def waitable(self) -> typing.Any:
        """What becomes ready when there is something to read; in the end, when the
        process has ended."""
        return self.process.sentinel if self._is_read else self._pipe

    def read(self) -> bool:
        """Takes what has become ready. Returns whether that was the end."""
        if self._is_read:
            self.process.join()
            if self.failure is None and (self._is_silent or self.process.exitcode != 0):
                self.failure = _Failure(self.rank, RankFailed(
                    f"rank {self.rank} {self._how_it_ended()}; read its output", self.rank))
            return True
        try:
            done, value, text = self._pipe.recv()
            if done:
                self.result = value
            else:
                self.failure = _Failure(self.rank, value, text)
        except EOFError:
            self._is_silent = True
        except Exception as error:  # pylint: disable=broad-exception-caught
            self.failure = _Failure(self.rank, RuntimeError(
                f"what rank {self.rank} returned cannot be read here: {error!r}"))
        self._is_read = True
        return False

    def _how_it_ended(self) -> str:
        code = self.process.exitcode or 0
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else \
            f"ended with status {code}"
        return f"{how} {'before' if self._is_silent else 'after'} its function returned"

    def close(self) -> None:
        """After the process has ended."""
        self._pipe.close()
        self.process.close()


def _end(ranks: Iterable[_Rank]) -> None:
    """Leaves no process."""
    running = [rank.process for rank in ranks]
    for end in ("terminate", "kill"):
        for process in running:
            if process.is_alive():
                getattr(process, end)()
        deadline = time.monotonic() + _KILL_S
        for process in running:
            process.join(max(0.0, deadline - time.monotonic()) if end == "terminate" else None)


def _watch(ranks: list[_Rank]) -> None:
    """Until all have ended, or for a while after the first failure."""
    deadline: float | None = None
    running = list(ranks)
    while running:
        left = None
        if deadline is not None:
            left = deadline - time.monotonic()
            if left <= 0:
                return
        ready = multiprocessing.connection.wait([rank.waitable for rank in running], left)
        for rank in [rank for rank in running if rank.waitable in ready]:
            if rank.read():
                running.remove(rank)
            if rank.failure is not None and deadline is None:
                deadline = time.monotonic() + _GRACE_S


def _raise_first(ranks: list[_Rank]) -> None:
    failures = [rank.failure for rank in ranks if rank.failure is not None]
    if not failures:
        return
    # The lowest rank of those that are not the others' consequence.
    failure = min(failures, key=_Failure.is_consequence)
    failure.error.add_note(f"(this was rank {failure.rank} of {len(ranks)})")
    if failure.text:
        raise failure.error from _RemoteTraceback(failure.text)
    raise failure.error


def spawn(function: Callable[..., typing.Any], size: int,
          args: tuple[typing.Any, ...] = ()) -> list[typing.Any]:
    """Runs `function(*args)` in `size` new processes of this host, as the ranks of a
    job, and returns what they returned, by rank.

    In the function, `ringpipe.Communicator()` joins the ranks: the same function also
    runs under a launcher. The processes are started by multiprocessing's "spawn": the
    function is one of a module's, what it takes and returns can be pickled, and the
    main module calls spawn under `if __name__ == "__main__":`.

    Raises the first rank's exception if one fails: that of a rank whose failure is
    not another's consequence. If a process is killed, that is `RankFailed`. The others
    are then ended, if they do not end by themselves within 4 s. No process is left
    behind, also after Ctrl-C, or if this process dies.
    """
    if size < 1:
        raise InvalidArgument(f"spawn: size is {size}; start at least 1 rank")
    context = multiprocessing.get_context("spawn")
    root = f"unix:@ringpipe-{os.getpid()}-{uuid.uuid4().hex}"
    ranks: list[_Rank] = []
    try:
        for number in range(size):
            ranks.append(_Rank(context, number, size, root, function, args))
        _watch(ranks)
    finally:
        _end(ranks)
    try:
        _raise_first(ranks)
        return [rank.result for rank in ranks]
    finally:
        for rank in ranks:
            rank.close()
