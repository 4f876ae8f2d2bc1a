"""Looks whether a thread waits, in place of a sleep that may be too short."""

import time

PATIENCE_S = 30


def until_it_sleeps(pid, thread):
    """Returns when the thread has been asleep each of several times."""
    deadline = time.monotonic() + PATIENCE_S
    asleep = 0
    while asleep < 5:
        if time.monotonic() > deadline:
            raise TimeoutError(f"thread {thread} of {pid} does not sleep")
        with open(f"/proc/{pid}/task/{thread}/stat", encoding="utf-8") as file:
            state = file.read().rpartition(") ")[2][0]
        asleep = asleep + 1 if state == "S" else 0
        time.sleep(0.01)
