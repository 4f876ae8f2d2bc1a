"""What ends a call between hosts, and what does not: TCP is believed.

    python3 -m tests.hosts.tcp_test BENCHMARK [Class[.test]]...
"""

import os
import signal
import sys
import time
import unittest

from tests.hosts.hosts import Hosts, Ranks
from tests.launch.job import liveness_bound_s

BENCHMARK = os.path.abspath(sys.argv.pop(1))
PORT = 29523
RATE = "80mbit"
# At that rate a call takes 0.4 s, and all of them some 10 s.
MANY_CALLS = ["-b", "4M", "-e", "4M", "-n", "12", "-w", "1"]
FEW_CALLS = ["-b", "64K", "-e", "64K", "-n", "1", "-w", "0"]


class TwoHosts(unittest.TestCase):

    def setUp(self):
        self.hosts = Hosts(2)
        self.addCleanup(self.hosts.close)

    def start(self, arguments, extra=None, root=None):
        job = Ranks(self.hosts, [BENCHMARK] + arguments, PORT, extra, root)
        self.addCleanup(job.close)
        return job

    def start_and_see_traffic(self, extra=None):
        """A job in the middle of its calls."""
        for host in range(2):
            self.hosts.throttle_sending(host, RATE)
        before = self.hosts.bytes(0)[1]
        job = self.start(MANY_CALLS, extra)
        deadline = time.monotonic() + 60
        while self.hosts.bytes(0)[1] < before + (8 << 20):
            self.assertLess(time.monotonic(), deadline, "no traffic")
            time.sleep(0.02)
        return job

    def expect_right(self, job):
        job.finish()
        self.assertEqual([rank.returncode for rank in job.ranks], [0, 0],
                         job.text())
        self.assertIn("Out of bounds values : 0 OK", job.ranks[0].stdout)
        self.assertNotIn("refused a connection", job.text())

    def expect_lost(self, job, since, promise_s):
        """Both ranks end, within the promise, and name each other."""
        job.finish()
        self.assertLess(time.monotonic() - since, liveness_bound_s(promise_s),
                        job.text())
        for rank in (0, 1):
            self.assertNotEqual(job.ranks[rank].returncode, 0, job.text())
            self.assertRegex(job.ranks[rank].stderr + job.ranks[rank].stdout,
                             rf"peer lost: .*rank {1 - rank}\b.*"
                             r"RINGPIPE_TCP_TIMEOUT_MS", job.text())


class WhatIsNoLoss(TwoHosts):
    """Calls go on, and are right."""

    def check_outage(self, begin, end, outage_s, extra=None):
        job = self.start_and_see_traffic(extra)
        begin()
        time.sleep(outage_s)
        end()
        self.expect_right(job)

    def test_a_link_that_takes_seconds_for_a_sub_chunk(self):
        for host in range(2):
            self.hosts.throttle_sending(host, "300kbit")
        self.expect_right(self.start(
            ["-b", "256K", "-e", "256K", "-n", "1", "-w", "0"]))

    def test_a_link_that_is_down_for_half_a_second(self):
        self.check_outage(lambda: self.hosts.cut(1),
                          lambda: self.hosts.restore(1), 0.5)

    def test_a_link_that_is_silent_for_a_moment(self):
        self.check_outage(lambda: self.hosts.silence(1),
                          lambda: self.hosts.end_silence(1), 0.6)

    def test_a_link_that_is_silent_for_three_seconds(self):
        self.check_outage(lambda: self.hosts.silence(1),
                          lambda: self.hosts.end_silence(1), 3)

    def test_links_that_lose_one_packet_in_twenty(self):
        job = self.start_and_see_traffic()
        for host in range(2):
            self.hosts.lose(host, one_in=20)
        self.expect_right(job)

    def check_stop(self, stopped_s, extra=None):
        job = self.start_and_see_traffic(extra)
        os.kill(job.ranks[1].pid, signal.SIGSTOP)
        time.sleep(stopped_s)
        os.kill(job.ranks[1].pid, signal.SIGCONT)
        self.expect_right(job)

    def test_a_process_that_is_stopped_for_a_second_and_a_half(self):
        self.check_stop(1.5)

    def test_a_process_that_is_stopped_for_three_seconds(self):
        self.check_stop(3)

    def test_a_process_that_is_stopped_for_longer_than_a_host_may_be_silent(
            self):
        self.check_stop(4, {"RINGPIPE_TCP_TIMEOUT_MS": "1000"})


class WhatIsALoss(TwoHosts):

    def test_a_cable_that_is_pulled_for_good(self):
        for pull in (self.hosts.cut, self.hosts.silence):
            with self.subTest(pull=pull.__name__):
                job = self.start_and_see_traffic(
                    {"RINGPIPE_TCP_TIMEOUT_MS": "2000"})
                before = time.monotonic()
                pull(1)
                start = time.monotonic()
                # At rank 1 it may be the connection to rank 0's bootstrap.
                self.expect_lost(job, start, promise_s=4)
                self.assertGreater(time.monotonic() - before, 1, job.text())
                job.close()
                if pull == self.hosts.cut:
                    self.hosts.restore(1)
                else:
                    self.hosts.end_silence(1)

    def test_a_process_that_is_killed(self):
        job = self.start_and_see_traffic()
        os.kill(job.ranks[1].pid, signal.SIGKILL)
        start = time.monotonic()
        job.finish()
        self.assertLess(time.monotonic() - start, liveness_bound_s(2))
        self.assertRegex(job.ranks[0].stderr + job.ranks[0].stdout,
                         r"peer lost: rank 1 \(pid", job.text())

    def test_a_firewall_that_passes_the_roots_port_alone(self):
        for host in range(2):
            self.hosts.drop_answers(host, 16384, 20000)
        job = self.start(FEW_CALLS, {"RINGPIPE_SOFT_PORTS": "16384-20000",
                                     "RINGPIPE_JOIN_TIMEOUT_MS": "4000"})
        job.finish()
        for rank in job.ranks:
            self.assertNotEqual(rank.returncode, 0, job.text())
        self.assertRegex(
            job.text(),
            r"no TCP connection (to|from) 10\.77\.0\.[12]:\d+ .*"
            r"16384 to 20000 \(RINGPIPE_SOFT_PORTS\)")


class WhichAddress(TwoHosts):

    def test_data_go_by_the_network_by_which_the_ranks_met(self):
        """The first address of each host is on a network that is not joined."""
        for host in range(2):
            address = f"{self.hosts.address(host)}/24"
            self.hosts.run(host, ["ip", "addr", "del", address, "dev", "eth0"])
            for one in (f"10.88.0.{host + 1}/32", address):
                self.hosts.run(host, ["ip", "addr", "add", one, "dev", "eth0"])
        self.expect_right(self.start(FEW_CALLS,
                                     {"RINGPIPE_JOIN_TIMEOUT_MS": "6000"}))

    def test_a_routed_address_of_the_loopback_interface_is_used(self):
        own = ["10.99.0.1", "10.99.0.2"]
        for host in range(2):
            self.hosts.run(host, ["ip", "addr", "flush", "dev", "eth0"])
            self.hosts.run(host, ["ip", "addr", "add", f"{own[host]}/32", "dev",
                                  "lo"])
            self.hosts.run(host, ["ip", "route", "add", f"{own[1 - host]}/32",
                                  "dev", "eth0", "src", own[host]])
        self.expect_right(self.start(FEW_CALLS,
                                     {"RINGPIPE_JOIN_TIMEOUT_MS": "6000"},
                                     root=own[0]))

    def test_an_entry_that_the_device_does_not_have_is_an_error(self):
        job = self.start(FEW_CALLS, {"RINGPIPE_GID_INDEX": "9"}).finish()
        self.assertNotEqual(job.ranks[0].returncode, 0, job.text())
        self.assertIn("RINGPIPE_GID_INDEX=9: this entry of the GID table",
                      job.text())


if __name__ == "__main__":
    unittest.main()
