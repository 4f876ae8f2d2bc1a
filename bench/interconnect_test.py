"""bench/interconnect as an operator meets it: ranks on this host, and mistakes."""

import json
import os
import signal
import sys
import tempfile
import unittest

from tests.launch.job import Process, adopt_orphans, lasting_descendants

PROGRAM = os.path.abspath(sys.argv.pop(1))
HEALTHY, FAULTY, NOT_MEASURED = 0, 1, 2
UNCERTAIN = NOT_MEASURED  # where others use the cores
QUICK = ["--duration", "0", "--message_bytes", "256K"]


class InterconnectTest(unittest.TestCase):

    def start(self, *arguments, **variables):
        process = Process([PROGRAM, *arguments],
                          {"PATH": os.environ["PATH"], "COLUMNS": "100",
                           **variables})
        self.addCleanup(process.close)
        self.addCleanup(process.kill)
        return process

    def run_it(self, *arguments, **variables):
        return self.start(*arguments, **variables).finish()

    def path(self, name):
        folder = tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR"))
        return os.path.join(folder, name)

    def test_ranks_of_this_host_measure_its_memory_and_say_so(self):
        run = self.run_it("--ranks", "4", *QUICK)
        self.assertIn("this measures its memory, not a network", run.stdout)
        self.assertIn("sender by receiver", run.stdout)
        self.assertIn("Latency, half a round trip", run.stdout)
        self.assertIn("interconnect: about ", run.stderr)
        self.assertIn(run.returncode, (HEALTHY, FAULTY, UNCERTAIN), run.stdout)
        # The verdict is said once, and by nobody else.
        self.assertEqual(len(run.stderr.splitlines()), 1, run.stderr)

    def test_the_files_have_all_samples(self):
        saved, page = self.path("run.json"), self.path("run.html")
        run = self.run_it("--ranks", "3", "--json", saved, "--html", page,
                          "--duration", "1", "--message_bytes", "256K")
        self.assertIn(run.returncode, (HEALTHY, FAULTY, UNCERTAIN), run.stderr)
        with open(saved, encoding="utf-8") as file:
            measured = json.load(file)
        matrix = measured["planes"][0]["bytes_per_s"]
        self.assertEqual(len(matrix["by_sender"]), 3)
        for sender, row in enumerate(matrix["by_sender"]):
            self.assertEqual(len(row), 3 * matrix["repeats"])
            for receiver in range(3):
                first = row[receiver * matrix["repeats"]]
                self.assertEqual(first is None, sender == receiver)
        self.assertEqual(measured["stress"]["wrong"], [])
        self.assertGreater(measured["stress"]["bytes"], 1 << 20)
        self.assertGreater(len(measured["patterns"]), 0)
        self.assertGreater(measured["patterns"][0]["bytes_per_s"], 0)
        median = measured["latencies"]["median_s"]["by_sender"]
        for one, other in ((0, 1), (0, 2), (1, 2)):
            self.assertGreater(median[one][other] or median[other][one], 0)
        for typical, late in zip(median, measured["latencies"]["p99_s"]["by_sender"]):
            for one, other in zip(typical, late):
                self.assertEqual(one is None, other is None)
                self.assertLessEqual(one or 0, other or 0)
        with open(page, encoding="utf-8") as file:
            self.assertIn("Interconnect of 3 ranks on 1 host", file.read())
        again = self.run_it("report", saved)
        self.assertEqual(again.returncode, run.returncode, again.stderr)
        self.assertIn("sender by receiver", again.stdout)

    def test_a_baseline_tells_what_has_changed(self):
        saved = self.path("now.json")
        self.run_it("--ranks", "3", "--json", saved, *QUICK)
        with open(saved, encoding="utf-8") as file:
            measured = json.load(file)
        bandwidths = measured["planes"][0]["bytes_per_s"]
        bandwidths["by_sender"] = [
            [None if value is None else 10 * value for value in row]
            for row in bandwidths["by_sender"]]
        faster = self.path("then.json")
        with open(faster, "w", encoding="utf-8") as file:
            json.dump(measured, file)
        run = self.run_it("report", saved, faster)
        self.assertEqual(run.returncode, FAULTY, run.stdout)
        self.assertIn("the links carry 10 % of what they did on", run.stdout)
        run = self.run_it("--ranks", "3", "--baseline", faster, *QUICK)
        self.assertEqual(run.returncode, FAULTY, run.stdout)
        self.assertIn("of what they did on", run.stdout)
        run = self.run_it("report", saved, saved)
        self.assertNotIn("of what they did on", run.stdout)

    def test_a_saved_run_whose_noise_hides_all_is_uncertain_again(self):
        saved, noisy = self.path("run.json"), self.path("noisy.json")
        self.run_it("--ranks", "4", "--json", saved, *QUICK)
        with open(saved, encoding="utf-8") as file:
            measured = json.load(file)
        for rank, of_rank in enumerate(measured["ranks"]):
            of_rank["host"] = f"c0{rank}"
        # By turns 10 GB/s and less, each link otherwise.
        links = measured["planes"][0]["bytes_per_s"]
        for sender, row in enumerate(links["by_sender"]):
            for at, value in enumerate(row):
                if value is not None:
                    row[at] = 1e10 / (1 + (7 * sender + 3 * at) % 5)
        measured["isolated"] = []
        with open(noisy, "w", encoding="utf-8") as file:
            json.dump(measured, file)
        run = self.run_it("report", noisy)
        self.assertEqual(run.returncode, UNCERTAIN, run.stdout + run.stderr)
        self.assertRegex(run.stdout, "(?m)^UNCERTAIN: ")

    def test_json_to_standard_output_is_nothing_but_json(self):
        run = self.run_it("--ranks", "2", "--json", "-", *QUICK)
        self.assertEqual(len(json.loads(run.stdout)["ranks"]), 2)
        self.assertIn("sender by receiver", run.stderr)

    def test_what_is_expected_and_not_there_is_a_fault(self):
        run = self.run_it("--ranks", "3", "--expect", "100TB/s", *QUICK)
        self.assertEqual(run.returncode, FAULTY, run.stdout)
        self.assertIn("100000 GB/s is expected", run.stdout)

    def test_the_software_device_is_named(self):
        run = self.run_it("--ranks", "2", *QUICK, RINGPIPE_DEVICE="soft")
        self.assertIn("by software device", run.stdout)

    def test_one_rank_has_no_link(self):
        run = self.run_it("--ranks", "1")
        self.assertEqual(run.returncode, NOT_MEASURED)
        self.assertIn("one rank has no link", run.stdout)

    def test_mistakes_are_named_before_anything_is_measured(self):
        for arguments, words in (
                (["--rnaks", "2"], "no option --rnaks"),
                (["--ranks", "0"], "--ranks"),
                (["--ranks", "2", "--expect", "90"], "90Gbit/s"),
                (["--ranks", "2", "--json", "/nowhere/a.json"], "/nowhere/a.json"),
                (["--ranks", "2", "--baseline", "/nowhere"], "/nowhere"),
                (["report", "/nowhere"], "/nowhere"),
                ([], "interconnect --ranks 8")):
            run = self.run_it(*arguments)
            self.assertEqual(run.returncode, NOT_MEASURED, arguments)
            self.assertIn(words, run.stderr)
            self.assertEqual(run.stdout, "")
        large = self.run_it("--ranks", "64", "--message_bytes", "1G")
        self.assertEqual(large.returncode, NOT_MEASURED)
        self.assertIn("64 ranks on this host need", large.stderr)
        self.assertIn("a smaller --message_bytes", large.stderr)
        wrong = self.run_it(RINGPIPE_TIMEOUT_MS="x")
        self.assertIn("RINGPIPE_TIMEOUT_MS=x", wrong.stderr)
        self.assertNotIn("--ranks 8", wrong.stderr)
        wrong = self.run_it("--ranks", "2", RINGPIPE_DEVICE="nothing0",
                            RINGPIPE_HOST_MEMORY="never")
        self.assertEqual(wrong.returncode, NOT_MEASURED, wrong.stdout)
        self.assertIn("nothing0", wrong.stderr)

    def test_help_needs_nothing_else(self):
        run = self.run_it("--help")
        self.assertEqual(run.returncode, 0)
        self.assertIn("Exit status: 0 healthy", run.stdout)

    def rank_of(self, process, number):
        """The pid of a rank that --ranks has started."""
        with open(f"/proc/{process.pid}/task/{process.pid}/children",
                  encoding="utf-8") as file:
            for pid in file.read().split():
                with open(f"/proc/{pid}/environ", "rb") as environment:
                    if f"RINGPIPE_RANK={number}".encode() in \
                            environment.read().split(b"\0"):
                        return int(pid)
        return self.fail("there is no such rank")

    def test_a_rank_that_is_killed_is_a_finding(self):
        process = self.start("--ranks", "3", "--duration", "60",
                             "--message_bytes", "256K")
        process.wait_for("interconnect: about", "stderr")
        os.kill(self.rank_of(process, 1), signal.SIGKILL)
        process.finish()
        self.assertEqual(process.returncode, FAULTY, process.stderr)
        self.assertIn("rank 1 was lost while", process.stdout)
        self.assertEqual(lasting_descendants(2), {})

    def test_interrupted_it_prints_what_was_measured(self):
        process = self.start("--ranks", "3", "--duration", "60",
                             "--message_bytes", "256K")
        process.wait_for("interconnect: about", "stderr")
        # The stress is last, and long: by now the rest is over or soon will be.
        os.kill(process.pid, signal.SIGINT)
        process.finish()
        self.assertEqual(process.returncode, -signal.SIGINT, process.stderr)
        self.assertIn("Ended early by SIGINT", process.stdout)
        self.assertEqual(lasting_descendants(2), {})


if __name__ == "__main__":
    adopt_orphans()
    unittest.main()
