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
import unittest

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
