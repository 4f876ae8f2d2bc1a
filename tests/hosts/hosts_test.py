"""ringpipe's collectives between hosts, by the software device over TCP."""

import os
import subprocess
import sys
import time
import unittest

from tests.hosts.hosts import Hosts
from tests.launch.job import Process, liveness_bound_s

BENCHMARK = os.path.abspath(sys.argv.pop(1))
CHECK_COLLECTIVES = os.path.abspath(sys.argv.pop(1))
PORT = 29517
SECRET = "a secret of this test"
ENDS_WITHIN_S = liveness_bound_s(3)


def algorithms_for(ranks):
    """By collective, the names of its algorithms."""
    listed = subprocess.run(
        [CHECK_COLLECTIVES, "algorithms", str(ranks)], check=True,
        capture_output=True, text=True, timeout=60)
    names = {}
    for line in listed.stdout.split():
        collective, name = line.split(":")
        names.setdefault(collective, []).append(name)
    return names


class Job:
    """One rank after the other, on the hosts in turn."""

    def __init__(self, hosts, ranks, arguments, extra=None,
                 program=BENCHMARK):
        self.ranks = []
        for rank in range(ranks):
            environment = {
                "PATH": os.environ["PATH"],
                "RINGPIPE_RANK": str(rank),
                "RINGPIPE_SIZE": str(ranks),
                "RINGPIPE_ROOT": f"{hosts.address(0)}:{PORT}",
                "RINGPIPE_SECRET": SECRET,
                **(extra or {}),
            }
            self.ranks.append(Process(
                hosts.command(rank % hosts.count, [program] + arguments),
                environment))

    def finish(self):
        for rank in self.ranks:
            rank.finish()
        return self

    def text(self):
        return "".join(f"--- rank {i}: {rank.returncode}\n{rank.stdout}{rank.stderr}"
                       for i, rank in enumerate(self.ranks))

    def close(self):
        for rank in self.ranks:
            rank.kill()
            rank.close()
        self.ranks = []


class HostsTest(unittest.TestCase):

    def run_job(self, hosts, ranks, arguments, extra=None,
                program=BENCHMARK):
        job = Job(hosts, ranks, arguments, extra, program)
        self.addCleanup(job.close)
        return job

    def expect_right(self, job):
        self.assertEqual([rank.returncode for rank in job.ranks],
                         [0] * len(job.ranks), job.text())
        self.assertIn("Out of bounds values : 0 OK", job.ranks[0].stdout)

    def check_crosses_the_wire(self, host_count):
        """One rank a host: each sends 2 (P - 1) / P of the data and receives it."""
        size, calls = 4 << 20, 4  # out of place and in place, twice each
        with Hosts(host_count) as hosts:
            before = [hosts.bytes(host) for host in range(host_count)]
            job = self.run_job(hosts, host_count,
                               ["-b", str(size), "-e", str(size), "-n", "1",
                                "-w", "1"]).finish()
            self.expect_right(job)
            wire_bytes = calls * size * 2 * (host_count - 1) // host_count
            for host in range(host_count):
                received, sent = (after - past for past, after in zip(
                    before[host], hosts.bytes(host)))
                self.assertGreaterEqual(received, wire_bytes)
                self.assertGreaterEqual(sent, wire_bytes)
            job.close()

    def test_allreduce_of_two_hosts_crosses_the_wire(self):
        self.check_crosses_the_wire(2)

    def test_allreduce_of_four_hosts_crosses_the_wire(self):
        self.check_crosses_the_wire(4)

    def test_ranks_of_one_host_and_of_another_work_together(self):
        with Hosts(2) as hosts:
            job = self.run_job(hosts, 6, ["-b", "8", "-e", "1M", "-f", "8",
                                          "-n", "2"]).finish()
            self.expect_right(job)
            job.close()

    def test_every_algorithm_is_right_over_mixed_connections(self):
        """Three ranks on each host: some peers by its memory, some by the device,
        and a number of ranks that is no power of two."""
        algorithms = algorithms_for(6)
        self.assertGreater(len(algorithms["allreduce"]), 10)
        with Hosts(2) as hosts:
            for number in range(max(map(len, algorithms.values()))):
                choice = ",".join(
                    f"{collective}:{names[number % len(names)]}"
                    for collective, names in algorithms.items())
                with self.subTest(choice=choice):
                    job = self.run_job(
                        hosts, 6, ["check", "1000", "300000"],
                        {"RINGPIPE_ALGORITHM": choice}, CHECK_COLLECTIVES)
                    job.finish()
                    self.assertEqual([rank.returncode for rank in job.ranks],
                                     [0] * 6, job.text())
                    for rank in job.ranks:
                        self.assertIn("reduce-scatter bytes=300000", rank.stdout)
                        self.assertNotRegex(rank.stdout, "wrong=[1-9]")
                    job.close()

    def test_without_a_secret_the_ranks_are_told_to_have_one(self):
        with Hosts(2) as hosts:
            job = self.run_job(hosts, 2, ["-b", "8", "-e", "8", "-n", "1"],
                               {"RINGPIPE_SECRET": "",
                                "RINGPIPE_JOIN_TIMEOUT_MS": "5000"}).finish()
            self.assertTrue(all(rank.returncode for rank in job.ranks))
            self.assertIn("RINGPIPE_SECRET", job.text())
            job.close()

    def check_cut(self, host_count, ranks):
        with Hosts(host_count) as hosts:
            # Long enough to be in the middle of it; ended by the cut.
            job = self.run_job(hosts, ranks, ["-b", "16M", "-e", "16M", "-n",
                                              "100000", "-c", "0"],
                               {"RINGPIPE_TCP_TIMEOUT_MS": "1000"})
            self.wait_for_traffic(hosts)
            hosts.cut(host_count - 1)
            start = time.monotonic()
            job.finish()
            took = time.monotonic() - start
            self.assertTrue(all(rank.returncode for rank in job.ranks),
                            job.text())
            self.assertLess(took, ENDS_WITHIN_S, job.text())
            job.close()
            hosts.restore(host_count - 1)
            after = self.run_job(hosts, ranks, ["-b", "64K", "-e", "64K", "-n",
                                                "1"]).finish()
            self.expect_right(after)
            after.close()

    def wait_for_traffic(self, hosts):
        deadline = time.monotonic() + 30
        while hosts.bytes(0)[1] < 100 << 20:
            self.assertLess(time.monotonic(), deadline, "no traffic")
            time.sleep(0.02)

    def test_a_cut_link_ends_both_ranks_and_a_restored_one_works(self):
        self.check_cut(2, 2)

    def test_a_cut_link_ends_the_ranks_of_four_hosts(self):
        self.check_cut(4, 4)


if __name__ == "__main__":
    unittest.main()
