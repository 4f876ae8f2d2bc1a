"""A rank of three to eight is killed at a random moment, again and again;
sometimes while another one is stopped.

    random_kill_test.py BENCHMARK RUNS

However it dies, from its first millisecond on, in the middle of whatever, and
whatever memory is in use, on one host or on two that meet over TCP: the others
end within two seconds, or three where one of them is stopped, each with the
error that this rank is lost. Where it had not joined yet, they wait for it as
long as a join may take.
"""

import os
import random
import re
import signal
import socket
import sys
import time
import unittest

from tests.launch.job import (Process, adopt_orphans, kill_descendants,
                              liveness_bound_s)

# Bazel runs so many of these at a time, and wants to see that they know.
SHARDS = int(os.environ.get("TEST_TOTAL_SHARDS", "1"))
RUNS = int(sys.argv.pop(2)) // SHARDS
BENCHMARK = os.path.abspath(sys.argv.pop(1))
ENDS_WITHIN_S = liveness_bound_s(2)
ENDS_BESIDE_A_STOPPED_RANK_WITHIN_S = liveness_bound_s(3)
# A quiet machine needs a twentieth of it for all to join.
JOIN_S = 12
# The benchmark's -R: private memory, the communicator's, registered memory.
BUFFERS = {"0": "private", "1": "allocated", "2": "registered"}
COLLECTIVES = ["allreduce", "reduce-scatter", "all-gather", "broadcast",
               "reduce", "gather", "scatter", "all-to-all"]
# That no rank has open, so that each says on stderr why it has ended; otherwise
# only rank 0 does.
NO_DESCRIPTOR = "999"
# In one run of so many another rank is stopped first.
STOP_EVERY = 5
# From the start of the processes until well into the calls.
LATEST_KILL_S = 0.6


def meeting(run, hosts):
    """The variables that say where the ranks of a job meet."""
    if hosts == 1:
        return {"RINGPIPE_ROOT": f"unix:@random-kill-{os.getpid()}-{run}"}
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    return {"RINGPIPE_ROOT": f"127.0.0.1:{port}",
            "RINGPIPE_SECRET": f"of {os.getpid()} {run}"}


def start(run, ranks, collective, size, buffers, hosts, device):
    """The ranks of a job that makes one call after the other, until it is
    ended."""
    environment = {
        "PATH": os.environ["PATH"],
        "RINGPIPE_SIZE": str(ranks),
        **meeting(run, hosts),
        "RINGPIPE_JOIN_TIMEOUT_MS": str(JOIN_S * 1000),
        "RINGPIPE_LOG_LEVEL": "info",
        "RINGPIPE_DEVICE": device,
        "RINGPIPE_SUBCHUNK_BYTES": random.choice(["4096", "131072"]),
    }
    return [Process([BENCHMARK, "--collective", collective, "-b", size, "-e", size, "-n", "1000000",
                     "-c", "0", "-R", buffers, "--error-fd", NO_DESCRIPTOR],
                    dict(environment, RINGPIPE_RANK=str(rank),
                         RINGPIPE_HOST_ID=f"host {rank * hosts // ranks}"))
            for rank in range(ranks)]


class RandomKillTest(unittest.TestCase):

    def expect_names(self, victim, ranks, survivor, context):
        """That the rank's own error is the loss of `victim`, by number."""
        self.assertGreater(survivor.returncode, 0, context)
        said = re.findall(r"^allreduce: (.*)", survivor.stderr, re.MULTILINE)
        self.assertEqual(len(said), 1, context)
        self.assertRegex(
            said[0],
            rf"peer lost: .*\brank {victim}\b"
            rf"|timeout: rank\(s\) {victim} of {ranks} did not join"
            rf"|timeout: .* rank {victim} is missing", context)

    def end_one(self, run):
        collective = random.choice(COLLECTIVES)
        size = random.choice(["8", "64K", "4M"])
        buffers = random.choice(list(BUFFERS))
        hosts = random.choice([1, 2])
        # Without a name ranks of one host share memory.
        device = random.choice(["", "soft"])
        count = random.randint(3, 8)
        victim, other = random.sample(range(count), 2)
        stopped = other if run % STOP_EVERY == 0 else None
        ranks = start(run, count, collective, size, buffers, hosts, device)
        try:
            if stopped is not None:
                # Who is stopped while it joins is waited for. This line is
                # behind the barrier that ends the creation on all ranks.
                ranks[0].wait_for(" by way of ", stream="stderr")
                time.sleep(0.2)
                os.kill(ranks[stopped].pid, signal.SIGSTOP)
            time.sleep(random.uniform(0, LATEST_KILL_S))
            os.kill(ranks[victim].pid, signal.SIGKILL)
            start_s = time.monotonic()
            survivors = [rank for index, rank in enumerate(ranks)
                         if index not in (victim, stopped)]
            for rank in survivors:
                rank.finish()
            took_s = time.monotonic() - start_s
            context = (f"run {run}, {count} ranks, {collective}, {size} of "
                       f"{BUFFERS[buffers]} memory, {hosts} host(s), device "
                       f"'{device}', rank {victim} killed, rank {stopped} "
                       "stopped\n" + "".join(rank.stderr for rank in survivors))
            joined = "did not join" not in context and "is missing" not in context
            self.assertLess(
                took_s,
                ENDS_BESIDE_A_STOPPED_RANK_WITHIN_S if stopped is not None
                else ENDS_WITHIN_S + (0 if joined else JOIN_S), context)
            for rank in survivors:
                self.expect_names(victim, count, rank, context)
            return took_s if joined else 0
        finally:
            kill_descendants()
            for rank in ranks:
                rank.close()

    def test_the_others_end_in_time_and_name_it(self):
        seed = random.randrange(1 << 32)
        print(f"seed {seed}")
        random.seed(seed)
        took_s = [self.end_one(run) for run in range(RUNS)]
        beside_stopped_s = took_s[::STOP_EVERY]
        del took_s[::STOP_EVERY]
        print(f"{len(took_s)} runs, the longest end took {max(took_s):.3f} s; "
              f"{len(beside_stopped_s)} beside a stopped rank, "
              f"{max(beside_stopped_s):.3f} s")


if __name__ == "__main__":
    if "TEST_SHARD_STATUS_FILE" in os.environ:
        with open(os.environ["TEST_SHARD_STATUS_FILE"], "w", encoding="utf-8"):
            pass
    adopt_orphans()
    unittest.main()
