"""compare_short_calls: what it reads, its tables, and what it says where nothing
is built."""

import importlib.machinery
import importlib.util
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parent / "compare_short_calls"
PRINTED = """2 ranks, 8 bytes, us: median (fastest to slowest of 15)
allreduce           0.39  (0.38 to 0.52)
barrier            12.40  (0.36 to 99.00)
"""


def load_script():
    loader = importlib.machinery.SourceFileLoader("script", str(SCRIPT))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


SHORT = load_script()


def turn(placement, ours, peers):
    return {"plain": (placement, {"barrier": ours}),
            SHORT.PEER: (placement, {"barrier": peers})}


class CompareShortCallsTest(unittest.TestCase):

    def test_what_the_programs_print_is_read(self):
        self.assertEqual(SHORT.parse_times(PRINTED),
                         {"allreduce": 0.39, "barrier": 12.4})
        with self.assertRaises(SHORT.Failure):
            SHORT.parse_times("short_calls: rank 1: peer lost")

    def test_a_ratio_is_of_one_round_and_each_placement_has_a_table(self):
        rounds = [turn("one L3", 3, 2), turn("one L3", 4, 2), turn("far", 9, 6),
                  turn("one L3", 5, 4)]
        near, far = SHORT.tables(rounds).split("\n\ncores: ")
        self.assertIn("cores: one L3", near)
        # Medians of 3, 4, 5 and of 1.5, 2, 1.25.
        self.assertIn("|barrier|4.00 (1.50; 1.25 to 2.00, 75 %, n 3)|2.00|", near)
        self.assertTrue(far.startswith("far"))
        self.assertIn("|9.00 (1.50; 1.50 to 1.50, 0 %, n 1)|6.00|", far)

    def test_what_has_to_be_built_is_said(self):
        with tempfile.TemporaryDirectory() as folder:
            for name in (SCRIPT.name, "comparison.py"):  # beside no bazel-bin
                shutil.copy(SCRIPT.with_name(name), folder)
            ended = subprocess.run(
                [sys.executable, pathlib.Path(folder) / SCRIPT.name],
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                timeout=60, check=False)
        self.assertEqual(ended.returncode, 1)
        self.assertRegex(ended.stderr, r"^compare_short_calls: no .*; build it: "
                                       r"bazel build //bench:released")


if __name__ == "__main__":
    unittest.main()
