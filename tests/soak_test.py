"""A job that runs for long stays as it is: memory, descriptors and threads.

    soak_test.py BENCHMARK SECONDS

Four ranks call allreduce, with checks, on private memory and on memory of the
communicator's, in host memory and over the software device, and are looked at
meanwhile. After a warm-up, which ends when nothing grows any more, no rank may
have more threads or descriptors than before, nor much more memory.
"""

import os
import statistics
import sys
import time
import unittest

from tests.launch.job import Process, adopt_orphans, kill_descendants

SECONDS = int(sys.argv.pop(2))
BENCHMARK = os.path.abspath(sys.argv.pop(1))
RANKS = 4
SAMPLES = 30
PERIOD_S = SECONDS / 5
# On a busy machine a rank gets little done in one. What grows for ever still
# does so after the last, and is found then.
MOST_WARM_UP_PERIODS = 7
# The allocator's own habits: in all, and in a period.
MOST_GROWTH_KIB = 1024
JITTER_KIB = 64


def look_at(pid):
    """Returns (resident KiB, descriptors, threads) of a process."""
    with open(f"/proc/{pid}/status", encoding="utf-8") as file:
        status = dict(line.split(":", 1) for line in file)
    return (int(status["VmRSS"].split()[0]), len(os.listdir(f"/proc/{pid}/fd")),
            int(status["Threads"]))


def grows(before, after):
    """Whether a process has grown from one look at it to the next."""
    return (after[0] > before[0] + JITTER_KIB or after[1] > before[1]
            or after[2] > before[2])


def warm_up(pids):
    """Returns when no process has grown for a period, or all are over."""
    seen = [look_at(pid) for pid in pids]
    for _ in range(MOST_WARM_UP_PERIODS):
        before = seen
        time.sleep(PERIOD_S)
        seen = [look_at(pid) for pid in pids]
        if not any(map(grows, before, seen)):
            return


class SoakTest(unittest.TestCase):

    def check_stays_flat(self, buffers, device=""):
        ranks = [Process([BENCHMARK, "-b", "1M", "-e", "1M", "-n", "1",
                          "-c", "10000000", "-R", buffers],
                         {"PATH": os.environ["PATH"],
                          "RINGPIPE_RANK": str(rank),
                          "RINGPIPE_SIZE": str(RANKS),
                          "RINGPIPE_DEVICE": device,
                          "RINGPIPE_ROOT": f"unix:@soak-{os.getpid()}-{buffers}"},
                         SECONDS + 60)
                 for rank in range(RANKS)]
        try:
            ranks[0].wait_for(r"\(elements\)")
            warm_up([rank.pid for rank in ranks])
            samples = [[] for _ in ranks]
            for _ in range(SAMPLES):
                time.sleep(SECONDS * 4 / 5 / SAMPLES)
                for rank, seen in zip(ranks, samples):
                    seen.append(look_at(rank.pid))
            for rank, seen in enumerate(samples):
                memory, descriptors, threads = zip(*seen)
                context = f"rank {rank}: (KiB, descriptors, threads) {seen}"
                self.assertEqual(len(set(descriptors)), 1, context)
                self.assertEqual(len(set(threads)), 1, context)
                growth = (statistics.median(memory[-SAMPLES // 3:]) -
                          statistics.median(memory[:SAMPLES // 3]))
                self.assertLess(growth, MOST_GROWTH_KIB, context)
                print(f"-R {buffers}, rank {rank}: {memory[0]} to {memory[-1]} "
                      f"KiB, {descriptors[0]} descriptors, {threads[0]} threads")
        finally:
            kill_descendants()
            for rank in ranks:
                rank.close()

    def test_on_private_memory(self):
        self.check_stays_flat("0")

    def test_on_allocated_memory(self):
        self.check_stays_flat("1")

    def test_over_the_software_device_on_registered_memory(self):
        self.check_stays_flat("2", "soft")


if __name__ == "__main__":
    adopt_orphans()
    unittest.main()
