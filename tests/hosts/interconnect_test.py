"""bench/interconnect between hosts: what is wrong with a network is named.

    python3 -m tests.hosts.interconnect_test PROGRAM [Class[.test]]...

All links have the same rate, well below what this machine can move; a fault is
half of it. INTERCONNECT_RUNS says how often each case is run; Matrix says which
cases there are besides.
"""

import collections
import json
import os
import re
import signal
import sys
import tempfile
import time
import unittest

from tests.hosts.hosts import Hosts, Ranks
from tests.launch.job import Process, liveness_bound_s

PROGRAM = os.path.abspath(sys.argv.pop(1))
RUNS = int(os.environ.get("INTERCONNECT_RUNS", "1"))
PORT = 29519
RATE, HALF = "80mbit", "40mbit"
# Without what has tests of its own, to be short.
SHORT = ["--duration", "0"]
# With those who do not come: they are named after so long.
SHORT_PATIENCE = {"RINGPIPE_JOIN_TIMEOUT_MS": "15000"}


class Checks(unittest.TestCase):
    """What the tests below share."""

    def start(self, hosts, arguments, extra=None, placement=None):
        job = Ranks(hosts, [PROGRAM] + arguments, PORT, extra, placement=placement)
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

    def certain(self, hosts):
        """A run of it; where other work on this machine makes that uncertain,
        another one, and so on."""
        for last in (False, False, False, True):
            job = self.start(hosts, SHORT).finish()
            if last or job.exit_statuses() != [2] * hosts.count:
                return job
            job.close()

    def check(self, hosts, exit_status, findings=()):
        """Runs it, several times: these findings and no other fault."""
        for run in range(RUNS):
            job = self.certain(hosts)
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


# Computes, allocates and copies.
SPIN = """
block = bytearray(1 << 22)
while True:
    copy = bytes(block)
    sorted(range(20000), key=lambda i: -i)
"""
# Sends as much as the link takes, for a third of the time.
BURSTS = """
import socket, sys, time
link = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
link.setblocking(False)
while True:
    end = time.monotonic() + 0.5
    while time.monotonic() < end:
        try:
            link.sendto(bytes(1400), (sys.argv[1], 9))
        except OSError:  # the queue is full, or nobody listens there
            time.sleep(0.001)
    time.sleep(1)
"""


class Matrix(Checks):
    """Faults in networks that are not kind, among so many hosts of that rate.

    A fault is named, or only its host found (what a burst makes of half a link is
    lost), or the verdict is uncertain (where nothing disturbs: it is named);
    nothing else is called a fault. Each of these is one value, or
    several with commas between, of the environment:
    INTERCONNECT_CONDITION, _HOSTS, _RATE (Mbit/s), _PLACEMENT, _FAULT.
    """

    SLOW = 2  # the host
    FAULTS = {
        "none": lambda hosts, rate: None,
        "host halved": lambda hosts, rate: (
            hosts.throttle_sending(Matrix.SLOW, f"{rate / 2}mbit"),
            hosts.throttle_receiving(Matrix.SLOW, f"{rate / 2}mbit")),
        "uplink halved": lambda hosts, rate:
            hosts.throttle_sending(Matrix.SLOW, f"{rate / 2}mbit"),
        "downlink halved": lambda hosts, rate:
            hosts.throttle_receiving(Matrix.SLOW, f"{rate / 2}mbit"),
        "pair halved": lambda hosts, rate: (
            hosts.throttle_sending(0, f"{rate}mbit",
                                   slow=(Matrix.SLOW, f"{rate / 2}mbit")),
            hosts.throttle_sending(Matrix.SLOW, f"{rate}mbit",
                                   slow=(0, f"{rate / 2}mbit"))),
        "15 % less": lambda hosts, rate: (
            hosts.throttle_sending(Matrix.SLOW, f"{rate * 0.85}mbit"),
            hosts.throttle_receiving(Matrix.SLOW, f"{rate * 0.85}mbit")),
        "1 % loss": lambda hosts, rate: hosts.lose(Matrix.SLOW, one_in=100),
    }
    # What a line of the report says of it, after the slow host's name.
    WORDS = {
        "none": "",
        "host halved": "(sends|receives)( and receives)? at",
        "uplink halved": "sends at",
        "downlink halved": "receives at",
        "pair halved": "is slow",
        "15 % less": "(sends|receives)( and receives)? at",
        "1 % loss": "(TCP sent|sends at)",
    }
    # By rank, its host.
    PLACEMENTS = {
        "1": lambda count: list(range(count)),
        "2": lambda count: [host for host in range(count) for _ in range(2)],
        "3+1+1": lambda count: [0, 0] + list(range(count)),
    }

    def be_idle(self, hosts):
        pass

    def be_busy(self, hosts):
        for _ in range(10 * os.cpu_count()):
            self.run_beside([sys.executable, "-c", SPIN])

    def send_bursts(self, hosts):
        for host in range(hosts.count):
            to = hosts.address((host + 1) % hosts.count)
            self.run_beside(hosts.command(
                host, [sys.executable, "-c", BURSTS, to]))

    CONDITIONS = {"idle": be_idle, "busy": be_busy, "bursts": send_bursts}

    def run_beside(self, command):
        process = Process(command, {"PATH": os.environ["PATH"]})
        self.beside.append(process)

    def end_beside(self):
        for process in self.beside:
            process.kill()
            process.close()
        self.beside = []

    def setUp(self):
        self.repeats = 0  # of the last run: of each link in company
        self.beside = []
        self.addCleanup(self.end_beside)

    def cell(self, condition, count, rate, placement, fault):
        """Each verdict, and how often it came."""
        seen = collections.Counter()
        with Hosts(count) as hosts:
            for host in range(count):
                hosts.throttle_sending(host, f"{rate}mbit")
                hosts.throttle_receiving(host, f"{rate}mbit")
            self.FAULTS[fault](hosts, rate)
            self.CONDITIONS[condition](self, hosts)
            for _ in range(RUNS):
                saved = os.path.join(
                    tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR")), "run.json")
                job = Ranks(hosts, [PROGRAM] + SHORT + ["--json", saved], PORT,
                            placement=self.PLACEMENTS[placement](count),
                            patience_s=300).finish()
                verdict = self.verdict(job, fault)
                if os.path.exists(saved):
                    with open(saved, encoding="utf-8") as file:
                        links = json.load(file)["planes"][0]["bytes_per_s"]
                    self.repeats = links["repeats"]
                seen[verdict] += 1
                if verdict not in self.allowed(condition, fault):
                    print(job.text(), flush=True)
                job.close()
            self.end_beside()
        return seen

    def verdict(self, job, fault):
        statuses = set(job.exit_statuses())
        faults = [line for line in job.ranks[0].stdout.splitlines()
                  if " fault  " in line]
        if len(statuses) != 1 or not statuses <= {0, 1, 2}:
            return "broken"
        if any(self.name(self.SLOW) not in line or "was lost" in line
               for line in faults) or (faults and fault == "none"):
            return "wrong"
        if faults:
            words = re.escape(self.name(self.SLOW)) + ".*" + self.WORDS[fault]
            return "named" if any(re.search(words, line) for line in faults) else "found"
        return {0: "healthy", 1: "wrong", 2: "uncertain"}[statuses.pop()]

    @staticmethod
    def allowed(condition, fault):
        if fault == "none":
            return {"healthy", "uncertain"}
        return {"named"} if condition == "idle" else {"named", "found", "uncertain"}

    def check_cells(self, cells):
        for cell in cells:
            with self.subTest(" ".join(map(str, cell))):
                seen = self.cell(*cell)
                print("%-7s %d hosts %3d Mbit/s %-6s %-15s: " % cell +
                      ", ".join(f"{verdict} {times}"
                                for verdict, times in sorted(seen.items())),
                      flush=True)
                self.assertLessEqual(set(seen), self.allowed(cell[0], cell[4]))


def chosen(name, default):
    return os.environ.get("INTERCONNECT_" + name, default).split(",")


class NoisySample(Matrix):

    def test_faults_are_never_healthy_and_healthy_links_never_faulty(self):
        self.check_cells([("busy", 4, 40, "1", "host halved")])
        # There was time for more than one pass.
        self.assertGreater(self.repeats, 3)
        self.check_cells([("bursts", 4, 40, "1", "none"),
                          ("idle", 4, 40, "1", "1 % loss")])

    def test_a_halved_host_is_named_among_bursts(self):
        # If something else disturbs it once more, it is uncertain.
        for _ in range(3):
            seen = self.cell("bursts", 4, 40, "1", "host halved")
            if set(seen) == {"named"}:
                return
        self.fail("it was never named")


class NoisyLong(Matrix):

    def test_faults_are_never_healthy_and_healthy_links_never_faulty(self):
        """All that was chosen; else each fault once, and each other value."""
        names = ("CONDITION", "HOSTS", "RATE", "PLACEMENT", "FAULT")
        if any("INTERCONNECT_" + name in os.environ for name in names):
            cells = [
                (condition, int(count), int(rate), placement, fault)
                for condition in chosen("CONDITION", "idle,busy,bursts")
                for count in chosen("HOSTS", "4")
                for rate in chosen("RATE", "40")
                for placement in chosen("PLACEMENT", "1")
                for fault in chosen("FAULT", ",".join(self.FAULTS))]
        else:
            cells = [("busy", 6, 40, "1", "none"),
                     ("idle", 4, 200, "1", "host halved"),
                     ("bursts", 4, 40, "2", "uplink halved"),
                     ("busy", 4, 40, "2", "downlink halved"),
                     ("bursts", 6, 200, "1", "pair halved"),
                     ("busy", 3, 200, "3+1+1", "15 % less"),
                     ("idle", 4, 40, "1", "1 % loss")]
        self.check_cells(cells)


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
        told = []
        for order in ((before, after), (after, before)):
            report = Process([PROGRAM, "report", *order],
                             {"PATH": os.environ["PATH"]}).finish()
            self.assertEqual(report.returncode, 1, report.stdout + report.stderr)
            self.assertIn("of what they did on", report.stdout)
            told.append(report.stdout)
            report.close()
        self.assertEqual(*told)
        with open(after, encoding="utf-8") as file:
            self.check_saved(json.load(file))

    def check_saved(self, saved):
        """All three passes are there, whole, and what the hosts say of TCP."""
        self.assertEqual(len(saved["ranks"]), 4)
        planes = saved["planes"]
        self.assertEqual([plane["name"] for plane in planes],
                         ["all rails", "short messages", "both ways at once"])
        for plane in planes:
            links = plane["bytes_per_s"]
            self.assertGreaterEqual(links["repeats"], 3)
            for sender, row in enumerate(links["by_sender"]):
                for at, value in enumerate(row):
                    self.assertEqual(value is None, at // links["repeats"] == sender)
        whole, short, both = (plane["message_bytes"] for plane in planes)
        self.assertEqual((16 * short, both), (whole, whole))
        for network in saved["networks"]:
            self.assertGreater(network["segments"], 1000)
            self.assertLess(network["retransmitted"], network["segments"])

    def check_goes_on_without(self, hosts, lost, lose, extra=None, placement=None):
        """Without these hosts, which are lost early: the others are measured."""
        placement = placement or range(hosts.count)
        job = self.start(hosts, ["--duration", "1"], extra, placement)
        job.ranks[0].wait_for("interconnect: about", "stderr")
        lose(job)
        start = time.monotonic()
        job.ranks[0].wait_for("going on without it", "stderr")
        self.assertLess(time.monotonic() - start, liveness_bound_s(hosts.count),
                        job.text())
        left = [rank for rank, host in enumerate(placement) if host not in lost]
        for rank in left:
            job.ranks[rank].finish()
        text = job.text()
        self.assertEqual([job.exit_statuses()[rank] for rank in left],
                         [1] * len(left), text)
        report = job.ranks[0].stdout
        faults = [line for line in report.splitlines() if " fault  " in line]
        self.assertEqual(len(faults), len(lost), text)
        for host in lost:
            self.assertTrue(any(f"host {self.name(host)} was lost while" in line
                                for line in faults), text)
        self.assertIn(f"{self.name(placement[left[-1]])} ", report)  # by its own name still
        self.assertIn(f"{len(left)} ranks on {hosts.count - len(lost)} hosts", report)
        return job

    def test_a_host_that_dies_is_named_and_the_others_are_measured(self):
        hosts = self.network(4)
        self.check_goes_on_without(hosts, [2], lambda job: job.ranks[2].kill())

    def test_two_hosts_that_die_at_once_are_named(self):
        hosts = self.network(5)
        self.check_goes_on_without(
            hosts, [1, 3], lambda job: [job.ranks[rank].kill() for rank in (1, 3, 4)],
            SHORT_PATIENCE, [0, 1, 2, 3, 3, 4])

    def test_a_link_that_goes_down_is_named_and_the_others_are_measured(self):
        hosts = self.network(4)
        job = self.check_goes_on_without(hosts, [2], lambda job: hosts.cut(2))
        # Also the host behind that link comes to an end.
        job.ranks[2].finish()
        self.assertIn(job.ranks[2].returncode, (1, 2), job.text())

    def test_hosts_that_die_in_the_stress_test_one_after_the_other(self):
        hosts = self.network(5)
        job = self.start(hosts, ["--duration", "12"], SHORT_PATIENCE)
        begins = "the stress test begins"
        job.ranks[0].wait_for(begins, "stderr")
        job.ranks[1].kill()
        job.ranks[0].wait_for(f"(?s){begins}.*{begins}", "stderr")
        job.ranks[3].kill()
        job.finish()
        text = job.text()
        self.assertEqual([job.exit_statuses()[rank] for rank in (0, 2, 4)], [1] * 3, text)
        for host in (1, 3):
            self.assertIn(f"host {self.name(host)} was lost while", job.ranks[0].stdout, text)

    def test_who_pauses_or_is_away_for_a_moment_is_not_lost(self):
        def pause(job):
            os.kill(job.ranks[2].pid, signal.SIGSTOP)
            time.sleep(3)
            os.kill(job.ranks[2].pid, signal.SIGCONT)

        def unplug(_):
            hosts.cut(2)
            time.sleep(0.5)
            hosts.restore(2)

        hosts = self.network(4)
        for disturb in (pause, unplug):
            with self.subTest(disturb.__name__):
                job = self.start(hosts, SHORT)
                job.ranks[0].wait_for("interconnect: about", "stderr")
                disturb(job)
                job.finish()
                text = job.text()
                self.assertLessEqual(set(job.exit_statuses()), {0, 2}, text)
                self.assertNotIn("was lost", job.ranks[0].stdout, text)
                job.close()

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
        self.assertRegex(job.ranks[0].stdout, "(?m)^(UNCERTAIN|NOT MEASURED): ")
        self.assertIn("sender by receiver", job.ranks[0].stdout, job.text())

    def test_ranks_that_the_kernel_kills_for_memory_are_no_fault_of_a_link(self):
        # What the kernel would say of this container (cgroup), of version 2 or 1.
        groups = "/sys/fs/cgroup"
        files = (f"{groups}/memory.events", f"{groups}/memory/memory.oom_control")
        hide = f"mount -t tmpfs none {groups} && mkdir {groups}/memory && exec \"$@\""
        for for_memory, status in ((True, 2), (False, 1)):
            with self.subTest(for_memory=for_memory):
                process = Process(
                    ["unshare", "--mount", "sh", "-c", hide, "sh", PROGRAM,
                     "--ranks", "2", "--duration", "60"],
                    {"PATH": os.environ["PATH"]})
                self.addCleanup(process.close)
                self.addCleanup(process.kill)
                process.wait_for("interconnect: about", "stderr")
                if for_memory:
                    for file in files:
                        with open(f"/proc/{process.pid}/root{file}", "w",
                                  encoding="utf-8") as events:
                            events.write("low 0\noom_kill 1\n")
                with open(f"/proc/{process.pid}/task/{process.pid}/children",
                          encoding="utf-8") as children:
                    os.kill(int(children.read().split()[-1]), signal.SIGKILL)
                process.finish()
                self.assertEqual(process.returncode, status,
                                 process.stdout + process.stderr)
                self.assertEqual("reached its limit of memory" in process.stderr,
                                 for_memory, process.stderr)


if __name__ == "__main__":
    unittest.main()
