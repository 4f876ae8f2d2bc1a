"""A rank of eight is killed at a random moment, again and again.

    random_kill_test.py BENCHMARK RUNS

However it dies, in the middle of whatever, the other seven end within two
seconds, with an error.
"""

import os
import random
import signal
import sys
import time
import unittest

from tests.launch.job import Process, adopt_orphans, kill_descendants

RUNS = int(sys.argv.pop(2))
BENCHMARK = os.path.abspath(sys.argv.pop(1))
RANKS = 8
ENDS_WITHIN_S = 2
# From setting up the connections until well into the calls.
LATEST_KILL_S = 0.3


def start(run):
    """The ranks of a job that calls allreduce until it is ended."""
    environment = {
        "PATH": os.environ["PATH"],
        "RINGPIPE_SIZE": str(RANKS),
        "RINGPIPE_ROOT": f"unix:@random-kill-{os.getpid()}-{run}",
        "RINGPIPE_LOG_LEVEL": "info",
        # Memory of the device, or private memory by turns.
        "RINGPIPE_SUBCHUNK_BYTES": random.choice(["4096", "131072"]),
    }
    size = random.choice(["8", "64K", "4M"])
    return [Process([BENCHMARK, "-b", size, "-e", size, "-n", "1000000",
                     "-c", "0"], dict(environment, RINGPIPE_RANK=str(rank)))
            for rank in range(RANKS)]


class RandomKillTest(unittest.TestCase):

    def end_one(self, run):
        ranks = start(run)
        try:
            # Each says so after all have joined.
            ranks[0].wait_for("devices: soft0", stream="stderr")
            time.sleep(random.uniform(0, LATEST_KILL_S))
            victim = random.randrange(RANKS)
            os.kill(ranks[victim].pid, signal.SIGKILL)
            start_s = time.monotonic()
            for rank in ranks:
                rank.finish()
            took_s = time.monotonic() - start_s
            text = "".join(rank.stderr for rank in ranks)
            self.assertLess(took_s, ENDS_WITHIN_S,
                            f"run {run}, rank {victim} killed\n{text}")
            for index, rank in enumerate(ranks):
                if index != victim:
                    self.assertGreater(rank.returncode, 0, text)
            return took_s
        finally:
            kill_descendants()
            for rank in ranks:
                rank.close()

    def test_the_others_end_within_two_seconds(self):
        seed = random.randrange(1 << 32)
        print(f"seed {seed}")
        random.seed(seed)
        longest_s = max(self.end_one(run) for run in range(RUNS))
        print(f"{RUNS} runs, the longest end took {longest_s:.3f} s")


if __name__ == "__main__":
    adopt_orphans()
    unittest.main()
