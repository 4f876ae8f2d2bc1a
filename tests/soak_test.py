"""A job that runs for long stays as it is: memory, descriptors and threads.

    soak_test.py BENCHMARK SECONDS

Four ranks call allreduce, with checks, on private memory and on memory of the
communicator's, in host memory and over the software device, and are looked at
meanwhile. After a warm-up no rank may have
more threads or descriptors than before, nor much more memory.
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
# The allocator's own habits.
MOST_GROWTH_KIB = 1024


def look_at(pid):
    """Returns (resident KiB, descriptors, threads) of a process."""
    with open(f"/proc/{pid}/status", encoding="utf-8") as file:
        status = dict(line.split(":", 1) for line in file)
    return (int(status["VmRSS"].split()[0]), len(os.listdir(f"/proc/{pid}/fd")),
            int(status["Threads"]))


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
            time.sleep(SECONDS / 5)
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
