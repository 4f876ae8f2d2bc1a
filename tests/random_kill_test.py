"""A rank of eight is killed at a random moment, again and again.

    random_kill_test.py BENCHMARK RUNS

However it dies, in the middle of whatever, and whatever memory is in use, the
other seven end within two seconds, each with the error that this rank is lost.
"""

import os
import random
import re
import signal
import sys
import time
import unittest

from tests.launch.job import (Process, adopt_orphans, kill_descendants,
                              liveness_bound_s)

RUNS = int(sys.argv.pop(2))
BENCHMARK = os.path.abspath(sys.argv.pop(1))
RANKS = 8
ENDS_WITHIN_S = liveness_bound_s(2)
# The benchmark's -R: private memory, the communicator's, registered memory.
BUFFERS = {"0": "private", "1": "allocated", "2": "registered"}
# That no rank has open, so that each says on stderr why it has ended; otherwise
# only rank 0 does.
NO_DESCRIPTOR = "999"
# From setting up the connections until well into the calls.
LATEST_KILL_S = 0.3


def start(run, size, buffers):
    """The ranks of a job that calls allreduce until it is ended."""
    environment = {
        "PATH": os.environ["PATH"],
        "RINGPIPE_SIZE": str(RANKS),
        "RINGPIPE_ROOT": f"unix:@random-kill-{os.getpid()}-{run}",
        "RINGPIPE_LOG_LEVEL": "info",
        "RINGPIPE_SUBCHUNK_BYTES": random.choice(["4096", "131072"]),
    }
    return [Process([BENCHMARK, "-b", size, "-e", size, "-n", "1000000",
                     "-c", "0", "-R", buffers, "--error-fd", NO_DESCRIPTOR],
                    dict(environment, RINGPIPE_RANK=str(rank)))
            for rank in range(RANKS)]


class RandomKillTest(unittest.TestCase):

    def expect_names(self, victim, survivor, context):
        """That the rank's own error is the loss of `victim`, by number."""
        self.assertGreater(survivor.returncode, 0, context)
        said = re.findall(r"^allreduce: (.*)", survivor.stderr, re.MULTILINE)
        self.assertEqual(len(said), 1, context)
        self.assertRegex(said[0], rf"^peer lost: .*\brank {victim}\b", context)

    def end_one(self, run):
        size = random.choice(["8", "64K", "4M"])
        buffers = random.choice(list(BUFFERS))
        ranks = start(run, size, buffers)
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
            context = (f"run {run}, {size} of {BUFFERS[buffers]} memory, rank "
                       f"{victim} killed\n" +
                       "".join(rank.stderr for rank in ranks))
            self.assertLess(took_s, ENDS_WITHIN_S, context)
            self.assertEqual(ranks[victim].returncode, -signal.SIGKILL, context)
            for index, rank in enumerate(ranks):
                if index != victim:
                    self.expect_names(victim, rank, context)
            return took_s
        finally:
            kill_descendants()
            for rank in ranks:
                rank.close()

    def test_the_others_end_within_two_seconds_and_name_it(self):
        seed = random.randrange(1 << 32)
        print(f"seed {seed}")
        random.seed(seed)
        longest_s = max(self.end_one(run) for run in range(RUNS))
        print(f"{RUNS} runs, the longest end took {longest_s:.3f} s")


if __name__ == "__main__":
    adopt_orphans()
    unittest.main()
