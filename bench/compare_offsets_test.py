"""compare_offsets: its tables, of made-up turns, a short run, and what it makes
of bad files."""

import importlib.machinery
import importlib.util
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

BENCH = pathlib.Path(__file__).resolve().parent
SCRIPT = BENCH / "compare_offsets"
PROGRAM = pathlib.Path(sys.argv.pop(1)).absolute()


def load_script():
    loader = importlib.machinery.SourceFileLoader("compare_offsets", str(SCRIPT))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


OFFSETS = load_script()


def case(offset, *us, size=65536, device="host", placement="one L3"):
    return {"device": device, "size": size, "offset": offset,
            "turns": [{"placement": placement, "us": one} for one in us]}


def document(*cases):
    return {"ranks": 2, "huge_pages": False, "cases": list(cases)}


def rows_of(text):
    return [[word.strip() for word in line.strip("|").split("|")]
            for line in text.splitlines() if line.startswith("|")]


def run(*words):
    return subprocess.run([sys.executable, SCRIPT, *map(str, words)],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True, timeout=90, check=False)


class TablesTest(unittest.TestCase):

    def test_a_cell_is_the_median_and_its_ratio_to_the_fastest_of_its_column(self):
        rows = rows_of(OFFSETS.tables(document(
            case(0, 9, 10, 50), case(16, 12, 12, 12), case(4, 30, 31, 29),
            case(0, 100, size=1 << 20), case(4, 100, size=1 << 20),
            case(16, size=1 << 20))))
        self.assertEqual(rows[0], ["offset in the page", "64K", "1M"])
        self.assertEqual(rows[2:], [["0", "10 (1.00)", "100 (1.00)"],
                                    ["4", "30 (3.00!)", "100 (1.00)"],
                                    ["16", "12 (1.20)", "–"]])

    def test_each_device_and_placement_has_a_table(self):
        text = OFFSETS.tables(document(
            case(0, 1), case(0, 2, device="soft"),
            case(0, 3, device="soft", placement="far")))
        self.assertEqual(
            [line for line in text.splitlines() if "cores:" in line],
            ["host, 2 ranks, 4 KiB pages, cores: one L3",
             "soft, 2 ranks, 4 KiB pages, cores: one L3",
             "soft, 2 ranks, 4 KiB pages, cores: far"])


class ProgramTest(unittest.TestCase):

    def test_a_file_that_is_not_its_own_is_named(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "other.json"
            path.write_text("[1]")
            done = run("--report", path)
        self.assertEqual(done.returncode, 1)
        self.assertIn(f"{path} is no file of its own", done.stderr)

    def test_an_offset_that_no_float_can_have_is_refused(self):
        done = run("--offset", "0,2")
        self.assertEqual(done.returncode, 2)
        self.assertIn("2: 0 to 4092, a multiple of 4", done.stderr)

    def test_a_short_run_prints_what_its_file_has(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "a.json"
            done = run("--program", PROGRAM, "--size", "16K",
                       "--offset", "0,16", "--rounds", "1", "--json", path)
            self.assertEqual(done.returncode, 0, done.stderr)
            saved = json.loads(path.read_text())
            self.assertEqual(run("--report", path).stdout, done.stdout)
        self.assertEqual([(one["device"], one["offset"])
                          for one in saved["cases"]],
                         [("host", 0), ("host", 16), ("soft", 0), ("soft", 16)])


if __name__ == "__main__":
    unittest.main()
