import contextlib
import importlib.machinery
import importlib.util
import io
import json
import os
import pathlib
import sys
import tempfile
import time
import types
import unittest
import unittest.mock

BENCH = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(BENCH))
import comparison  # pylint: disable=wrong-import-position


def load_script(name):
    loader = importlib.machinery.SourceFileLoader(name, str(BENCH / name))
    module = importlib.util.module_from_spec(
        importlib.util.spec_from_loader(name, loader))
    loader.exec_module(module)
    return module


compare_guest = load_script("compare_guest")
compare_peers = load_script("compare_peers")


class IntervalTest(unittest.TestCase):

    def test_six_values_give_their_range_with_97_percent(self):
        self.assertEqual(comparison.interval([3, 1, 2, 6, 5, 4]),
                         (1, 6, 1 - 2 / 64))

    def test_nine_values_leave_out_one_at_each_end(self):
        low, high, confidence = comparison.interval(range(9))
        self.assertEqual((low, high), (1, 7))
        self.assertAlmostEqual(confidence, 1 - 2 * 10 / 512)

    def test_three_values_say_that_they_give_less_than_95_percent(self):
        self.assertEqual(comparison.interval([1, 2, 3]), (1, 3, 0.75))


class RunTest(unittest.TestCase):

    def test_a_program_that_does_not_end_is_killed_with_its_children(self):
        with tempfile.TemporaryDirectory() as folder:
            pid_file = pathlib.Path(folder) / "pid"
            start = time.monotonic()
            with self.assertRaisesRegex(comparison.Failure, "more than 1 s"):
                comparison.run(["sh", "-c", f"sleep 60 & echo $! > {pid_file}; "
                                "wait"], {}, patience_s=1)
            self.assertLess(time.monotonic() - start, 30)
            # The output was read to its end: no process has it open any more.
            child = int(pid_file.read_text())
            try:
                state = pathlib.Path(f"/proc/{child}/stat").read_text()
            except FileNotFoundError:
                return
            self.assertIn(") Z", state)

    def test_a_failure_says_what_the_program_printed(self):
        with self.assertRaisesRegex(comparison.Failure,
                                    "exit status 3:\nno device"):
            comparison.run(["sh", "-c", "echo no device; exit 3"], {})

    def test_a_program_that_is_not_there_is_named(self):
        with self.assertRaisesRegex(comparison.Failure, "/no/such.*setup"):
            comparison.run(["/no/such"], {})


class ParsePeerTest(unittest.TestCase):

    def test_samples_by_place(self):
        self.assertEqual(
            comparison.parse_peer("noise\n"
                                  "in_place wrong 0 first 9.0 samples 1.5 2\n"),
            {"in_place": [1.5, 2.0]})

    def test_a_wrong_result_is_no_result(self):
        with self.assertRaises(comparison.Failure):
            comparison.parse_peer("in_place wrong 7 first 9.0 samples 1.5\n")


class PlacementTest(unittest.TestCase):

    def test_its_name_is_what_core_placement_printed_first(self):
        self.assertEqual(
            comparison.parse_placement("one L3 117 ns, cores 0 and 1\n"),
            "one L3")
        with self.assertRaises(comparison.Failure):
            comparison.parse_placement("near 3 ns")

    def test_a_machine_of_more_cores_has_none(self):
        with tempfile.TemporaryDirectory() as folder:
            program = pathlib.Path(folder) / "core_placement"
            program.write_text("#!/bin/sh\necho far 507 ns, cores 0 and 1\n")
            program.chmod(0o755)
            with unittest.mock.patch("os.sched_getaffinity",
                                     return_value={0, 1}):
                self.assertEqual(comparison.Placement(program).now(), "far")
                gone = comparison.Placement(program.with_name("gone"))
                self.assertEqual(gone.now(), "not recorded")
                self.assertIn("bazel build", gone.why_unknown)
            with unittest.mock.patch("os.sched_getaffinity",
                                     return_value={0, 1, 2}):
                self.assertEqual(comparison.Placement(program).now(),
                                 "not recorded")

    def test_rounds_in_which_it_changed_are_dropped(self):
        far, near = ["far"] * 3, ["one L3"] * 3
        kept, dropped = comparison.by_placement(
            [(far, 1), (near, 2), (["far", "far", "one L3"], 3),
             (["far", "one L3", "far"], 4), (far, 5)])
        self.assertEqual(kept, {"far": [1, 5], "one L3": [2]})
        self.assertEqual(dropped, 2)


class ComparePeersTest(unittest.TestCase):

    @staticmethod
    def _round(placement, ours, theirs):
        return ([placement] * 3, {place: (ours, theirs)
                                  for place in comparison.PLACES})

    def test_there_is_a_table_for_each_placement(self):
        text = compare_peers.report(
            {(8, 64): [self._round("far", 30, 10), self._round("one L3", 5, 10),
                       self._round("far", 30, 10),
                       (["far", "far", "one L3"], {})]}, "openmpi")
        far, near = text.split("# placement of the cores: one L3")
        self.assertIn("# placement of the cores: far", far)
        self.assertIn("3.000  3.000 to 3.000 (50 % CI, 2 rounds)", far)
        self.assertIn("0.500  0.500 to 0.500 (0 % CI, 1 rounds)", near)
        self.assertIn("dropped, as the placement changed: 1\n", near)

    def test_every_case_has_as_many_rounds_and_is_measured_in_turn(self):
        turns = []

        class Program:

            @staticmethod
            def measure(ranks, size, _):
                turns.append((ranks, size))
                return {place: [1, 2, 3] for place in comparison.PLACES}

        class NoPlacement:

            @staticmethod
            def now():
                return "far"

        arguments = types.SimpleNamespace(
            ranks=[2, 4], size=[8], rounds=2, minutes=None, iterations=None)
        cases = compare_peers.measure(arguments, Program, Program, NoPlacement)
        self.assertEqual(turns, [(2, 8), (2, 8), (4, 8), (4, 8)] * 2)
        self.assertEqual(cases[2, 8][0],
                         (["far"] * 3, {place: (2, 2)
                                        for place in comparison.PLACES}))
        # Without time, no round.
        arguments.rounds, arguments.minutes = None, 1e-9
        cases = compare_peers.measure(arguments, Program, Program, NoPlacement)
        self.assertEqual(cases, {(2, 8): [], (4, 8): []})


class ReportTest(unittest.TestCase):

    def _report(self, rounds):
        document = {
            "date": "2026-11-21", "machine": "a guest", "device": "rxe0",
            "sub_chunk": 131072, "variants": {},
            "cases": [{"ranks": 2, "size": 1 << 20, "iterations": 5,
                       "rounds": rounds}]}
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "a.json"
            path.write_text(json.dumps(document))
            output = io.StringIO()
            with contextlib.redirect_stdout(output):
                compare_guest.report([json.loads(path.read_text())])
        return output.getvalue()

    @staticmethod
    def _round(ours, theirs):
        limits = {"send": 400, "send_both": 200, "write": 400,
                  "write_both": 200, "reduce": 0, "copy": 0}
        ours = {"in_place": ours}
        return {"gloo": {"ringpipe": ours, "peer": theirs},
                "limits": {"ringpipe": ours, "peer": limits}}

    def test_ratios_pair_neighbours(self):
        # Both drift alike: every ratio is 2, whatever their medians.
        text = self._report([self._round(time_us, {"in_place": 2 * time_us})
                             for time_us in (1e3, 9e3, 2e3, 5e3, 3e3, 4e3)])
        self.assertIn("| 2.00 (2.00 to 2.00) |", text)

    def test_a_peers_failed_rounds_are_left_out_and_the_doubt_is_shown(self):
        rounds = [self._round(1e3, {"in_place": 3e3}) for _ in range(3)]
        rounds += [self._round(1e3, {"failure": "died"}) for _ in range(3)]
        self.assertIn("| 3.00 (3.00 to 3.00, 75 %) |", self._report(rounds))

    def test_with_free_reductions_the_model_is_the_wire(self):
        # 1 MiB in 5 ms are 200 MiB/s, which is the wire of each direction.
        text = self._report([self._round(5e3, {}) for _ in range(6)])
        self.assertIn("| 1.00 (1.00 to 1.00) | 1.00 (1.00 to 1.00) | "
                      "0.50 (0.50 to 0.50) |", text)

    def test_reducing_and_copying_a_byte_each_cost_half_their_time(self):
        limits = {"send_both": 1e9 / (1 << 20), "reduce": 1e-9, "copy": 3e-9}
        self.assertAlmostEqual(compare_guest.model_gb_per_s(limits, 0.5),
                               1 / (1 + 0.5 + 1.5))


class GuestTest(unittest.TestCase):

    def test_outside_a_guest_it_says_what_is_missing(self):
        os.environ.pop("RDMA_DEV", None)
        with self.assertRaisesRegex(SystemExit, "RDMA_DEV is not set"):
            compare_guest.Guest(pathlib.Path("."))


if __name__ == "__main__":
    unittest.main()
