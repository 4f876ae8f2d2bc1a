"""What has to hold on the guest's devices; runs inside the guest.

    python3 -m tests.rdma_guest.checks REPORT CHECK_COLLECTIVES INTERCONNECT LIMIT_S
        [Class[.test]]...

REPORT becomes a JUnit file with what has run so far,
after each test. After LIMIT_S seconds it says where it is, and ends.
"""

import faulthandler
import json
import os
import re
import resource
import shutil
import sys
import tempfile
import time
import unittest

from tests.rdma_guest import fabric
from tests.rdma_guest.ranks import Ranks
from tests.rdma_guest.report import ReportingResult

SIZES = [4, 1000, 64 << 10, 1 << 20, 16 << 20, 64 << 20]
# Of more than two ranks: the guest moves some 100 MB/s.
SIZES_OF_MANY = SIZES[:-1]
COLLECTIVES = ["allreduce", "reduce-scatter", "all-gather", "broadcast"]
FAILED = 3  # check_collectives: a call failed
KILLED = -9
# Seen on two idle cores: 1 s, and 10 s for silence, of which the device notices
# only when it has retried long enough. A busy machine runs the guest several times
# slower; what these bounds tell apart is a call that waits for its deadline, 60 s.
KILL_BOUND_S = 15
DOWN_BOUND_S = 20
SILENCE_BOUND_S = 45
REPEATED_BYTES = 1 << 20
# For results, not for times: 4.3 s until a device sends again. An emulated one may
# need more than the usual second to acknowledge 16 MiB while the machine is busy,
# and what it then sends again comes on top.
PATIENT = {"RINGPIPE_QP_TIMEOUT": "20"}
NOBODY = 65534
INTERCONNECT_RUNS = 2

# Set by main.
program = None  # check_collectives
interconnect = None


class Checks(unittest.TestCase):
    """What the tests below share."""

    def start(self, count, arguments, **places):
        ranks = Ranks(program, count, [str(word) for word in arguments], **places)
        self.addCleanup(ranks.close)
        return ranks

    def start_repeating(self, count, **places):
        ranks = self.start(count, ["repeat", REPEATED_BYTES], **places)
        ranks.wait_until_running()
        return ranks

    def check_right(self, ranks, sizes):
        """All ended well, every case ran, and none had a wrong element."""
        self.assertEqual(ranks.statuses(), [0] * len(ranks.processes), ranks.text())
        for process in ranks.processes:
            wrong = re.findall(r"^(\S+) bytes=(\d+) .* wrong=(\d+)$",
                               process.stdout, re.MULTILINE)
            self.assertEqual({(what, int(size)) for what, size, _ in wrong},
                             {(what, size) for what in COLLECTIVES for size in sizes})
            self.assertEqual({count for _, _, count in wrong}, {"0"})

    def check_all_failed(self, ranks, expected, survivors=None):
        """Each surviving rank ended with an error that matches `expected`."""
        for rank, process in enumerate(ranks.processes):
            if survivors is None or rank in survivors:
                self.assertEqual(process.returncode, FAILED, ranks.text())
                failed = re.search(r"^failed after \d+ calls: (.*)$", process.stdout,
                                   re.MULTILINE)
                self.assertTrue(failed, ranks.text())
                self.assertRegex(failed[1], expected, ranks.text())


def traffic(ranks):
    """What the algorithms of all ranks must have sent: (in all, across)."""
    lines = [re.search(r"^sent=(\d+) crossing=(\d+)$", process.stdout, re.MULTILINE)
             for process in ranks.processes]
    return (sum(int(line[1]) for line in lines), sum(int(line[2]) for line in lines))


class Collectives(Checks):
    """On one device, or between two hosts."""

    def check(self, count):
        sizes = SIZES if count == 2 else SIZES_OF_MANY
        sent_before = fabric.sent_bytes()
        crossed_before = self.crossed()
        ranks = self.start(count, ["check", *sizes], environment=PATIENT)
        ranks.finish()
        self.check_right(ranks, sizes)
        sent, crossing = traffic(ranks)
        self.assertGreater(sent, 2 * count * sizes[-1])
        self.assertGreaterEqual(fabric.sent_bytes() - sent_before, sent)
        if fabric.has_two_hosts():
            self.assertGreater(crossing, 2 * sizes[-1])
            self.assertGreaterEqual(self.crossed() - crossed_before, crossing)

    @staticmethod
    def crossed():
        return sum(fabric.interface_bytes(device.interface)
                   for device in fabric.devices())

    def test_of_2_ranks_are_right_and_cross_the_device(self):
        self.check(2)

    def test_of_4_ranks_are_right_and_cross_the_device(self):
        self.check(4)

    def test_of_8_ranks_are_right_and_cross_the_device(self):
        self.check(8)


class Death(Checks):

    def check(self, count, victim):
        ranks = self.start_repeating(count)
        ranks.processes[victim].kill()
        took_s = ranks.finish()
        self.assertEqual(ranks.processes[victim].returncode, KILLED)
        self.check_all_failed(ranks, rf"\brank {victim}\b",
                              set(range(count)) - {victim})
        self.assertLess(took_s, KILL_BOUND_S, ranks.text())

    def test_of_one_of_2_ranks_ends_the_other(self):
        self.check(2, 1)

    def test_of_one_of_4_ranks_ends_the_others(self):
        self.check(4, 2)

    def test_of_rank_0_of_4_ends_the_others(self):
        self.check(4, 0)

    def test_of_one_of_8_ranks_ends_the_others(self):
        self.check(8, 5)


class Leaving(Checks):

    def test_in_good_order_ends_no_call_of_others_with_each_other(self):
        ranks = self.start(3, ["outlive", 64 << 20], environment=PATIENT)
        ranks.finish()
        self.assertEqual(ranks.statuses(), [0] * 3, ranks.text())


# An error that names a peer: a rank, and not as the one that reports the error
# ("device error: rank 0: ...").
NAMES_A_PEER = r"(?<!^)(?<!: )\brank \d+\b|\brank \d+\b(?!: )"


class LinkChecks(Checks):
    """Between two hosts."""

    def check_afterwards(self):
        """A job is right once the link works again."""
        sizes = [64 << 10]
        ranks = self.start(2, ["check", *sizes])
        ranks.finish()
        self.check_right(ranks, sizes)


class Link(LinkChecks):

    def check_down(self, count):
        device = fabric.devices()[0]
        ranks = self.start_repeating(count)
        try:
            device.set_link("down")
            took_s = ranks.finish()
        finally:
            device.set_link("up")
            fabric.restore_paths()
        self.check_all_failed(ranks, NAMES_A_PEER)
        self.assertLess(took_s, DOWN_BOUND_S, ranks.text())
        self.check_afterwards()

    def test_down_ends_2_ranks_with_an_error_that_names_the_peer(self):
        self.check_down(2)

    def test_down_ends_8_ranks_with_an_error_that_names_the_peer(self):
        self.check_down(8)


class Silence(LinkChecks):
    """Not of iWARP, where TCP goes on trying for minutes."""

    def test_that_loses_packets_in_silence_ends_4_ranks_with_such_an_error(self):
        here, there = fabric.devices()
        ranks = self.start_repeating(4)
        try:
            # To an address that the other end does not listen to.
            here.replace_neighbour(there.address, "02:00:00:00:00:01")
            took_s = ranks.finish()
        finally:
            fabric.restore_paths()
        self.check_all_failed(ranks, NAMES_A_PEER)
        self.assertLess(took_s, SILENCE_BOUND_S, ranks.text())
        self.check_afterwards()


class Memlock(Checks):

    def start_as_nobody(self, limit_kib):
        """Ranks of an ordinary user; root's memory is not bound by the limit."""
        for name in os.listdir("/dev/infiniband"):
            os.chmod(os.path.join("/dev/infiniband", name), 0o666)
        # The program may lie in a folder that others cannot enter.
        folder = tempfile.mkdtemp(dir="/run")
        self.addCleanup(shutil.rmtree, folder)
        os.chmod(folder, 0o755)
        copy = shutil.copy(program, folder)
        os.chmod(copy, 0o755)
        limit = limit_kib * 1024 if limit_kib else resource.RLIM_INFINITY
        ranks = Ranks(copy, 2, ["check", "1000"], prefix=[
            "prlimit", f"--memlock={limit}:{limit}", "setpriv", f"--reuid={NOBODY}",
            f"--regid={NOBODY}", "--clear-groups"])
        self.addCleanup(ranks.close)
        ranks.finish()
        return ranks

    def test_of_64_kib_gives_the_advice_and_no_crash(self):
        ranks = self.start_as_nobody(64)
        self.assertEqual(ranks.statuses(), [FAILED, FAILED], ranks.text())
        for process in ranks.processes:
            self.assertRegex(process.stdout,
                             r"(?m)^failed: resource exhausted: .*ulimit -l",
                             ranks.text())

    def test_without_bound_lets_an_ordinary_user_work(self):
        self.check_right(self.start_as_nobody(None), [1000])


class Rails(Checks):
    """Two devices that carry one job."""

    def rails(self):
        return ",".join(device.name for device in fabric.devices())

    def test_share_the_load_and_are_right(self):
        sizes = SIZES_OF_MANY
        before = [device.sent_packets() for device in fabric.devices()]
        ranks = self.start(2, ["check", *sizes], device=self.rails())
        ranks.finish()
        self.check_right(ranks, sizes)
        sent, _ = traffic(ranks)
        packets = [device.sent_packets() - past
                   for device, past in zip(fabric.devices(), before)]
        self.assertGreaterEqual(fabric.MTU_BYTES * sum(packets), sent)
        self.assertGreater(min(packets), sum(packets) / 3, packets)

    def test_of_which_one_goes_down_end_all_ranks_with_an_error_that_names_it(self):
        second = fabric.devices()[1]
        ranks = self.start_repeating(4, device=self.rails())
        try:
            second.set_link("down")
            took_s = ranks.finish()
        finally:
            second.set_link("up")
        self.check_all_failed(ranks, rf"\b{second.name}\b")
        self.assertLess(took_s, DOWN_BOUND_S, ranks.text())


class SlowRail(Checks):
    """bench/interconnect between two hosts with two rails."""

    def check(self, rates, exit_status, faults):
        """Rail 0 and rail 1 have these rates: so many faults. Returns what rank 0
        says, in one line."""
        for number, device in enumerate(fabric.devices()):
            device.throttle(rates[number // 2])
        saved = os.path.join(tempfile.mkdtemp(), "links.json")
        ranks = Ranks(interconnect, 2, ["--duration", "0", "--json", saved])
        self.addCleanup(ranks.close)
        ranks.finish()
        with open(saved, encoding="utf-8") as file:
            ports = json.load(file)["ports"]
        self.assertGreaterEqual(len(ports), len(fabric.devices()))
        for port in ports:
            self.assertGreater(port["counters_after"]["sent_pkts"],
                               port["counters_before"]["sent_pkts"], port)
        self.assertEqual(ranks.statuses(), [exit_status] * 2, ranks.text())
        said = ranks.processes[0].stdout
        self.assertEqual(said.count(" fault  "), faults, said)
        return " ".join(said.split())

    def test_of_two_is_named(self):
        slow = fabric.devices()[2].name
        for _ in range(INTERCONNECT_RUNS):
            self.assertRegex(
                self.check(["80mbit", "40mbit"], exit_status=1, faults=1),
                rf"rail 1 \({slow}:1\) carries [45]\.\d+ MB/s on all hosts where the "
                r"fastest rail carries (9|10)\.\d+ MB/s")

    def test_that_is_as_fast_as_the_other_is_no_fault(self):
        for _ in range(INTERCONNECT_RUNS):
            self.check(["80mbit", "80mbit"], exit_status=0, faults=0)


def main():
    # The tests are made by unittest, which passes them nothing.
    global program, interconnect
    report, program, interconnect, limit_s, *names = sys.argv[1:]
    faulthandler.dump_traceback_later(float(limit_s), exit=True)
    start = time.monotonic()
    tests = unittest.defaultTestLoader.loadTestsFromNames(
        names, sys.modules[__name__])
    result = unittest.TextTestRunner(
        stream=sys.stdout, verbosity=2, failfast=False,
        resultclass=lambda *arguments, **named: ReportingResult(
            report, *arguments, **named)).run(tests)
    print(f"{fabric.kind()}: {time.monotonic() - start:.1f} s")
    sys.exit(0 if result.wasSuccessful() and result.testsRun else 1)


if __name__ == "__main__":
    main()
