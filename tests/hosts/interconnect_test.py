"""bench/interconnect between hosts: what is wrong with a network is named.

    python3 -m tests.hosts.interconnect_test PROGRAM [Class[.test]]...

All links have the same rate, well below what this machine can move; a fault is
half of it. INTERCONNECT_RUNS says how often each case is run.
"""

import json
import os
import signal
import sys
import tempfile
import time
import unittest

from tests.hosts.hosts import Hosts
from tests.launch.job import Process, liveness_bound_s

PROGRAM = os.path.abspath(sys.argv.pop(1))
RUNS = int(os.environ.get("INTERCONNECT_RUNS", "1"))
PORT = 29519
RATE, HALF = "80mbit", "40mbit"
# Without what has tests of its own, to be short.
SHORT = ["--duration", "0"]


class Job:
    """A rank on each host."""

    def __init__(self, hosts, arguments, extra=None):
        self.ranks = []
        for rank in range(hosts.count):
            environment = {
                "PATH": os.environ["PATH"],
                "RINGPIPE_RANK": str(rank),
                "RINGPIPE_SIZE": str(hosts.count),
                "RINGPIPE_ROOT": f"{hosts.address(0)}:{PORT}",
                "RINGPIPE_SECRET": "a secret of this test",
                **(extra or {}),
            }
            self.ranks.append(Process(
                hosts.command(rank, [PROGRAM] + arguments), environment,
                patience_s=120))

    def finish(self):
        for rank in self.ranks:
            rank.finish()
        return self

    def exit_statuses(self):
        return [rank.returncode for rank in self.ranks]

    def text(self):
        return "".join(f"--- rank {i}: {rank.returncode}\n{rank.stdout}{rank.stderr}"
                       for i, rank in enumerate(self.ranks))

    def close(self):
        for rank in self.ranks:
            rank.kill()
            rank.close()
        self.ranks = []


class Checks(unittest.TestCase):
    """What the tests below share."""

    def start(self, hosts, arguments, extra=None):
        job = Job(hosts, arguments, extra)
        self.addCleanup(job.close)
        return job

    def network(self, count):
        hosts = Hosts(count)
        self.addCleanup(hosts.close)
        for host in range(count):
            hosts.throttle_sending(host, RATE)
            hosts.throttle_receiving(host, RATE)
        return hosts

    # vm#3 is the third of the hosts that are all called vm.
    def name(self, host):
        return f"{os.uname().nodename}#{host + 1}"

    def check(self, hosts, exit_status, findings=()):
        """Runs it, several times: these findings and no other fault."""
        for run in range(RUNS):
            job = self.start(hosts, SHORT).finish()
            text = job.text()
            self.assertEqual(job.exit_statuses(),
                             [exit_status] * hosts.count, f"run {run}\n{text}")
            faults = [line for line in job.ranks[0].stdout.splitlines()
                      if " fault  " in line]
            self.assertEqual(len(faults), len(findings), f"run {run}\n{text}")
            for words in findings:
                self.assertTrue(any(words in line for line in faults),
                                f"run {run}: no {words}\n{text}")
            job.close()

    def check_all(self, count):
        with self.subTest("nothing is wrong"):
            self.check(self.network(count), 0)
        slow = count - 2
        with self.subTest("a slow host"):
            hosts = self.network(count)
            hosts.throttle_sending(slow, HALF)
            hosts.throttle_receiving(slow, HALF)
            self.check(hosts, 1,
                       [f"host {self.name(slow)} sends and receives at "])
        with self.subTest("a slow sender"):
            hosts = self.network(count)
            hosts.throttle_sending(slow, HALF)
            self.check(hosts, 1, [f"host {self.name(slow)} sends at "])
        with self.subTest("a slow receiver"):
            hosts = self.network(count)
            hosts.throttle_receiving(slow, HALF)
            self.check(hosts, 1, [f"host {self.name(slow)} receives at "])
        with self.subTest("a slow pair"):
            hosts = self.network(count)
            hosts.throttle_sending(0, RATE, slow=(slow, HALF))
            hosts.throttle_sending(slow, RATE, slow=(0, HALF))
            self.check(hosts, 1,
                       [f"{self.name(0)} ↔ {self.name(slow)} alone is slow"])
        with self.subTest("a slow path, one way"):
            hosts = self.network(count)
            hosts.throttle_sending(0, RATE, slow=(slow, HALF))
            self.check(hosts, 1,
                       [f"{self.name(0)} → {self.name(slow)} alone is slow"])


class EightHosts(Checks):

    def test_faults_are_named_and_told_apart(self):
        self.check_all(8)


class FourHosts(Checks):

    def test_faults_are_named_and_told_apart(self):
        self.check_all(4)

    def test_a_saved_run_is_drawn_again_and_compared_with_a_later_one(self):
        hosts = self.network(4)
        folder = tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR"))
        before, after = (os.path.join(folder, name)
                         for name in ("before.json", "after.json"))
        job = self.start(hosts, SHORT + ["--json", before]).finish()
        self.assertEqual(job.exit_statuses(), [0] * 4, job.text())
        for host in range(4):
            hosts.throttle_sending(host, HALF)
        job = self.start(hosts, SHORT + ["--json", after]).finish()
        # All alike, so that nobody stands out.
        self.assertEqual(job.exit_statuses(), [0] * 4, job.text())
        report = Process([PROGRAM, "report", before, after],
                         {"PATH": os.environ["PATH"]}).finish()
        self.assertEqual(report.returncode, 1, report.stdout + report.stderr)
        self.assertIn("of what they did on", report.stdout)
        report.close()
        with open(after, encoding="utf-8") as file:
            saved = json.load(file)
        self.assertEqual(len(saved["ranks"]), 4)

    def test_a_host_that_dies_is_named(self):
        hosts = self.network(4)
        job = self.start(hosts, ["--duration", "60"])
        job.ranks[0].wait_for("interconnect: about", "stderr")
        job.ranks[2].kill()
        start = time.monotonic()
        job.finish()
        self.assertLess(time.monotonic() - start, liveness_bound_s(4),
                        job.text())
        self.assertEqual(job.exit_statuses()[:2] + job.exit_statuses()[3:],
                         [1] * 3, job.text())
        self.assertIn(f"host {self.name(2)} was lost while",
                      job.ranks[0].stdout)

    def test_a_link_that_goes_down_is_named(self):
        hosts = self.network(4)
        job = self.start(hosts, ["--duration", "60"])
        job.ranks[0].wait_for("interconnect: about", "stderr")
        hosts.cut(3)
        job.finish()
        self.assertEqual(job.exit_statuses()[:3], [1] * 3, job.text())
        self.assertIn(f"host {self.name(3)} was lost while",
                      job.ranks[0].stdout)

    def test_interrupted_it_says_what_it_has_measured(self):
        hosts = self.network(4)
        job = self.start(hosts, ["--duration", "600"])
        job.ranks[0].wait_for("interconnect: about", "stderr")
        time.sleep(3)  # some of it
        for rank in job.ranks:
            os.kill(rank.pid, signal.SIGINT)
        job.finish()
        self.assertEqual(job.ranks[0].returncode, -signal.SIGINT, job.text())
        self.assertIn("Ended early by SIGINT", job.ranks[0].stdout)
        self.assertIn("sender by receiver", job.ranks[0].stdout, job.text())


if __name__ == "__main__":
    unittest.main()
