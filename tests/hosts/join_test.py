"""How the ranks of several hosts find rank 0, and what they say if they do not.

    python3 -m tests.hosts.join_test JOIN_ONCE ALLREDUCE [Class[.test]]...
"""

import json
import os
import sys
import tempfile
import time
import unittest

from tests.hosts.hosts import Hosts
from tests.launch.job import Process, liveness_bound_s

JOIN_ONCE = os.path.abspath(sys.argv.pop(1))
ALLREDUCE = os.path.abspath(sys.argv.pop(1))
PORT = 29521
SECRET = "a secret of this test"
# For ranks that are not to find each other, or whose deadline must not matter.
SHORT_MS, LONG_MS = 4000, 40000
# In which a rank comes, and one that does not is given up.
COME_MS = 10000


class Rank(Process):
    """One rank of a job of `size`, on a host."""

    def __init__(self, hosts, host, rank, root, size=2, program=None,
                 limits="true", **variables):
        environment = {
            "PATH": os.environ["PATH"],
            "RINGPIPE_RANK": str(rank),
            "RINGPIPE_SIZE": str(size),
            "RINGPIPE_ROOT": root,
            "RINGPIPE_SECRET": SECRET,
            "RINGPIPE_JOIN_TIMEOUT_MS": str(LONG_MS),
            **variables,
        }
        super().__init__(
            hosts.command(host, ["sh", "-c", limits + ' && exec "$@"', "sh"] +
                          (program or [JOIN_ONCE])), environment,
            patience_s=60)

    def text(self):
        return f"{self.returncode}: {self.stdout}{self.stderr}"


class JoinTest(unittest.TestCase):

    def hosts(self, count):
        hosts = Hosts(count)
        self.addCleanup(hosts.close)
        return hosts

    def rank(self, *arguments, **named):
        rank = Rank(*arguments, **named)
        self.addCleanup(rank.close)
        self.addCleanup(rank.kill)
        return rank

    def job(self, hosts, root, **variables):
        """Rank i on host i, to their ends."""
        ranks = [self.rank(hosts, host, host, root, hosts.count, **variables)
                 for host in range(hosts.count)]
        return [rank.finish() for rank in ranks]

    def expect_joined(self, ranks, addresses):
        for rank, address in zip(ranks, addresses):
            self.assertEqual(rank.returncode, 0, rank.text())
            self.assertIn(f"address {address}\n", rank.stdout, rank.text())

    def expect_says(self, rank, *words):
        self.assertEqual(rank.returncode, 1, rank.text())
        for text in words:
            self.assertIn(text, rank.stderr)


class WhichAddress(JoinTest):

    def test_loopback_among_the_admitted_interfaces_is_no_way_to_others(self):
        hosts = self.hosts(2)
        for interfaces in "", "^docker", "lo,eth0", "^=eth1", "eth", "=eth0":
            with self.subTest(interfaces):
                ranks = self.job(hosts, f"{hosts.address(0)}:{PORT}",
                                 RINGPIPE_SOCKET_IFNAME=interfaces)
                self.expect_joined(ranks, map(hosts.address, range(2)))

    def test_the_admitted_interface_that_leads_to_rank_0_is_used(self):
        hosts = self.hosts(2)
        for host in range(2):
            # eth0 comes first, and leads nowhere.
            hosts.run(host, ["ip", "addr", "flush", "dev", "eth0"])
            hosts.run(host, ["ip", "addr", "add", f"10.66.{host}.1/24", "dev",
                             "eth0"])
            hosts.add_interface(host, "eth1", f"10.79.0.{host + 1}/24")
        for interfaces in "eth,eth1", "^lo", "=eth1", "":
            with self.subTest(interfaces):
                ranks = self.job(hosts, f"10.79.0.1:{PORT}",
                                 RINGPIPE_SOCKET_IFNAME=interfaces)
                self.expect_joined(ranks, ["10.79.0.1", "10.79.0.2"])

    def test_another_admitted_interface_is_tried_if_the_kernels_is_not(self):
        hosts = self.hosts(2)
        hosts.run(0, ["ip", "route", "add", "10.80.0.0/24", "via",
                      hosts.address(1)])
        # The kernel's route has eth0's address; 10.81.0.1 leads nowhere.
        for name, address in ("eth1", "10.81.0.1/32"), ("eth2", "10.80.0.1/32"):
            hosts.run(1, ["ip", "link", "add", name, "type", "veth"])
            hosts.run(1, ["ip", "addr", "add", address, "dev", name])
            hosts.run(1, ["ip", "link", "set", name, "up"])
        ranks = [self.rank(hosts, 0, 0, f"{hosts.address(0)}:{PORT}"),
                 self.rank(hosts, 1, 1, f"{hosts.address(0)}:{PORT}",
                           RINGPIPE_SOCKET_IFNAME="=eth1,eth2")]
        self.expect_joined([rank.finish() for rank in ranks],
                           [hosts.address(0), "10.80.0.1"])

    def test_an_address_of_lo_that_is_routed_is_as_good_as_any(self):
        hosts = self.hosts(3)
        for host in range(3):
            hosts.run(host, ["ip", "addr", "flush", "dev", "eth0"])
            hosts.run(host, ["ip", "addr", "add", f"10.99.0.{host + 1}/32",
                             "dev", "lo"])
            for other in {0, 1, 2} - {host}:
                hosts.run(host, ["ip", "route", "add", f"10.99.0.{other + 1}",
                                 "dev", "eth0", "src", f"10.99.0.{host + 1}"])
        for interfaces in "", "lo", "^docker":
            with self.subTest(interfaces):
                ranks = self.job(hosts, f"10.99.0.1:{PORT}",
                                 RINGPIPE_SOCKET_IFNAME=interfaces)
                self.expect_joined(ranks,
                                   [f"10.99.0.{host + 1}" for host in range(3)])

    def test_a_link_local_root_needs_its_interface(self):
        hosts = self.hosts(2)
        (link,) = json.loads(hosts.run(0, ["ip", "-j", "link", "show", "eth0"]))
        mac = [int(byte, 16) for byte in link["address"].split(":")]
        address = (f"fe80::{mac[0] ^ 2:02x}{mac[1]:02x}:{mac[2]:02x}ff:"
                   f"fe{mac[3]:02x}:{mac[4]:02x}{mac[5]:02x}")
        for interfaces in "", "=eth0":
            ranks = self.job(hosts, f"[{address}%eth0]:{PORT}",
                             RINGPIPE_SOCKET_IFNAME=interfaces)
            for rank in ranks:
                self.assertEqual(rank.returncode, 0, rank.text())
        for rank in self.job(hosts, f"[{address}]:{PORT}"):
            self.expect_says(rank, "invalid argument: ", "say which one", "%eth0")

    def test_without_an_address_for_others_each_rank_says_so_at_once(self):
        hosts = self.hosts(2)
        for host in range(2):
            # It has an IPv6 address of the link, and that alone.
            hosts.add_interface(host, "eth1", "fe80::77/64")
        for interfaces in "=lo", "=eth1":
            start = time.monotonic()
            for rank in self.job(hosts, f"{hosts.address(0)}:{PORT}",
                                 RINGPIPE_SOCKET_IFNAME=interfaces):
                self.expect_says(rank, "unavailable: ",
                                 "RINGPIPE_SOCKET_IFNAME",
                                 "has an address at which other hosts reach",
                                 "eth0 10.77.0.")
            self.assertLess(time.monotonic() - start, liveness_bound_s(2))

    def test_who_comes_by_loopback_learns_the_hosts_address(self):
        hosts = self.hosts(2)
        ranks = [self.rank(hosts, host, rank, root, 3)
                 for rank, host, root in (
                     (0, 0, f"{hosts.address(0)}:{PORT}"),
                     (1, 0, f"127.0.0.1:{PORT}"),
                     (2, 1, f"{hosts.address(0)}:{PORT}"))]
        self.expect_joined([rank.finish() for rank in ranks],
                           map(hosts.address, (0, 0, 1)))


class TheCauseIsNamed(JoinTest):

    @staticmethod
    def lose_packets(hosts, host, address):
        hosts.run(host, ["ip", "neigh", "replace", address, "lladdr",
                         "02:00:00:00:00:99", "dev", "eth0", "nud",
                         "permanent"])

    def test_lost_packets(self):
        hosts = self.hosts(2)
        self.lose_packets(hosts, 1, "10.77.0.9")
        for number in "12":
            hosts.add_interface(1, "eth" + number, f"10.66.{number}.1/24")
        # Before and after TCP is given up; and from each of two addresses.
        ranks = [self.rank(hosts, 1, 1, f"10.77.0.9:{PORT}",
                           RINGPIPE_JOIN_TIMEOUT_MS=limit_ms,
                           RINGPIPE_SOCKET_IFNAME=interfaces)
                 for limit_ms, interfaces in (("2000", ""), ("7000", ""),
                                              ("7000", "^=eth0"))]
        for rank in ranks:
            self.expect_says(rank.finish(), "timeout: ",
                             f"no answer from 10.77.0.9:{PORT}", "firewall")
        self.expect_says(ranks[2], "from 10.66.1.1", "from 10.66.2.1")

    def test_a_mute_program_in_the_place_of_rank_0(self):
        hosts = self.hosts(2)
        listener = Process(hosts.command(0, [
            sys.executable, "-c",
            "import socket, time\n"
            f"s = socket.create_server(('{hosts.address(0)}', {PORT}))\n"
            "print('ready', flush=True)\n"
            "time.sleep(600)"]), {"PATH": os.environ["PATH"]})
        self.addCleanup(listener.close)
        self.addCleanup(listener.kill)
        listener.wait_for("ready")
        for rank in [self.rank(hosts, 1, 1, f"{hosts.address(0)}:{PORT}",
                               RINGPIPE_JOIN_TIMEOUT_MS=limit_ms)
                     for limit_ms in ("2000", "7000")]:
            self.expect_says(rank.finish(), "takes connections, but",
                             "another program")

    def test_a_root_on_another_host(self):
        hosts = self.hosts(2)
        ranks = self.job(hosts, f"{hosts.address(1)}:{PORT}",
                         RINGPIPE_JOIN_TIMEOUT_MS=str(SHORT_MS))
        self.expect_says(ranks[0], f"RINGPIPE_ROOT leads to {hosts.address(1)}, "
                         "which is no address of rank 0's host",
                         f"eth0 {hosts.address(0)}")
        self.expect_says(ranks[1],
                         f"nobody listens at {hosts.address(1)}:{PORT}")

    def test_neighbours_that_a_firewall_keeps_apart(self):
        hosts = self.hosts(3)
        self.lose_packets(hosts, 1, hosts.address(2))
        folder = tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR"))
        self.addCleanup(folder.cleanup)
        silent = os.path.join(folder.name, "silent")
        os.mkfifo(silent)
        ranks = [self.rank(hosts, host, host, f"{hosts.address(0)}:{PORT}", 3,
                           [JOIN_ONCE, "stay"], f"exec <>{silent}")
                 for host in range(3)]
        ranks[1].wait_for(
            r"no bootstrap connection to rank 2 \(pid .*\(no answer from "
            rf"{hosts.address(2)}:\d+.*firewall.*TCP ports", "stderr")

    def test_two_hosts_with_one_identity(self):
        hosts = self.hosts(2)
        for rank in self.job(hosts, f"{hosts.address(0)}:{PORT}",
                             program=[ALLREDUCE, "-b", "8", "-e", "8"],
                             RINGPIPE_HOST_ID="a copied text"):
            self.expect_says(rank, "set RINGPIPE_HOST_ID to another text on "
                             "each host")


class WhoCannotTakePartSaysSo(JoinTest):

    def test_a_rank_whose_limit_is_too_low(self):
        hosts = self.hosts(2)
        for low in 0, 1:
            with self.subTest(low):
                start = time.monotonic()
                ranks = [self.rank(hosts, rank, rank,
                                   f"{hosts.address(0)}:{PORT}",
                                   program=[ALLREDUCE, "-b", "8", "-e", "8"],
                                   limits="ulimit -n 18" if rank == low
                                   else "true") for rank in range(2)]
                for rank in ranks:
                    self.expect_says(rank.finish(), "resource exhausted: ",
                                     "ulimit -n")
                self.expect_says(ranks[1 - low], f"rank {low}: ")
                self.assertLess(time.monotonic() - start, liveness_bound_s(3))

    def test_all_ranks_without_a_secret_fail_at_once(self):
        hosts = self.hosts(2)
        start = time.monotonic()
        for rank in self.job(hosts, f"{hosts.address(0)}:{PORT}",
                             RINGPIPE_SECRET=""):
            self.expect_says(rank, "invalid argument: ",
                             "set RINGPIPE_SECRET to the same value")
        self.assertLess(time.monotonic() - start, liveness_bound_s(3))

    def test_rank_0_names_the_secret_that_one_rank_lacks(self):
        hosts = self.hosts(2)
        root = f"{hosts.address(0)}:{PORT}"
        ranks = [self.rank(hosts, 0, 0, root,
                           RINGPIPE_JOIN_TIMEOUT_MS=str(COME_MS)),
                 self.rank(hosts, 1, 1, root, RINGPIPE_SECRET="")]
        for rank in ranks:
            rank.finish()
        self.expect_says(ranks[1], "set RINGPIPE_SECRET to the same value")
        self.expect_says(ranks[0], "rank(s) 1 of 2", "refused ", "secret")


if __name__ == "__main__":
    unittest.main()
