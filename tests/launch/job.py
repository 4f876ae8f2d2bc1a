"""A job's processes, whatever starts them, with an end that is sure to come."""

import ctypes
import fcntl
import os
import re
import selectors
import signal
import subprocess
import time

PATIENCE_S = 45
# As base/liveness_bound.h, which says why.
LIVENESS_FACTOR = 6
PR_SET_CHILD_SUBREAPER = 36


def liveness_bound_s(promise_s):
    """How long a test gives what is promised within `promise_s`."""
    return promise_s * LIVENESS_FACTOR


def adopt_orphans():
    """Makes what launchers leave behind a child of this process.

    Launchers put their ranks into groups and sessions of their own. This way
    descendants() sees them all the same, also after the launcher's end.
    """
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    if prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def descendants():
    """Returns {pid: name} of the processes below this one that still run."""
    children = {}
    names = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat", encoding="utf-8") as file:
                    head, _, tail = file.read().rpartition(") ")
            except OSError:  # it has ended
                continue
            state, parent = tail.split()[:2]
            children.setdefault(int(parent), []).append(int(entry))
            if state not in "ZX":
                names[int(entry)] = head.partition("(")[2]
    found = {}
    below = [os.getpid()]
    while below:
        for pid in children.get(below.pop(), []):
            below.append(pid)
            if pid in names:
                found[pid] = names[pid]
    return found


def lasting_descendants(promise_s):
    """Returns those of descendants() that outlive the promise that they end."""
    deadline = time.monotonic() + liveness_bound_s(promise_s)
    while (running := descendants()) and time.monotonic() < deadline:
        time.sleep(0.01)
    return running


def kill_descendants():
    """Ends all of them, also those that are just being started."""
    deadline = time.monotonic() + PATIENCE_S
    while running := descendants():
        if time.monotonic() > deadline:
            raise TimeoutError(f"cannot kill {running}")
        for pid in running:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass


class Process:
    """One command: a launcher, or one rank. Not thread-safe.

    Each wait for it ends after `patience_s`, with an error.
    """

    def __init__(self, command, environment, patience_s=PATIENCE_S):
        self._patience_s = patience_s
        self._process = subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.pid = self._process.pid
        self._texts = {self._process.stdout: b"", self._process.stderr: b""}
        self._selector = selectors.DefaultSelector()
        for pipe in self._texts:
            self._selector.register(pipe, selectors.EVENT_READ)

    @property
    def stdout(self):
        return self._texts[self._process.stdout].decode()

    @property
    def stderr(self):
        return self._texts[self._process.stderr].decode()

    @property
    def returncode(self):
        return self._process.returncode

    def bound_unread_output(self):
        """From now on it stops when 4 KiB of its output have not been read here."""
        fcntl.fcntl(self._process.stdout, fcntl.F_SETPIPE_SZ, 4096)

    def _read(self, deadline):
        """Takes what there is to read, or waits for it."""
        ready = self._selector.select(max(0, deadline - time.monotonic()))
        if not ready:
            raise TimeoutError(f"nothing more after\n{self.stdout}{self.stderr}")
        for key, _ in ready:
            text = os.read(key.fd, 65536)
            self._texts[key.fileobj] += text
            if not text:
                self._selector.unregister(key.fileobj)

    def wait_for(self, pattern, stream="stdout"):
        """Returns the match of `pattern` in stdout, as soon as there is one."""
        deadline = time.monotonic() + self._patience_s
        while not (match := re.search(pattern, getattr(self, stream))):
            if not self._selector.get_map():
                raise EOFError(f"no {pattern} in\n{self.stdout}{self.stderr}")
            self._read(deadline)
        return match

    def finish(self):
        """Waits for the end: of it, and of all that hold its pipes."""
        deadline = time.monotonic() + self._patience_s
        while self._selector.get_map():
            self._read(deadline)
        self._process.wait(max(0, deadline - time.monotonic()))
        return self

    def kill(self):
        """Ends the command, but not what it has started."""
        self._process.kill()

    def close(self):
        """After kill_descendants() or kill()."""
        self._process.wait(self._patience_s)
        self._selector.close()
        self._process.stdout.close()
        self._process.stderr.close()
