"""compare_algorithms: its table, of made-up turns, and what it makes of bad
files."""

import importlib.machinery
import importlib.util
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parent / "compare_algorithms"


def load_script():
    loader = importlib.machinery.SourceFileLoader("compare_algorithms", str(SCRIPT))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


ALGORITHMS = load_script()


def case(algorithm, *us, ranks=2, size=65536):
    return {"ranks": ranks, "size": size, "algorithm": algorithm, "us": list(us)}


def rows_of(*cases):
    text = ALGORITHMS.table({"device": "host", "rounds": 6, "cases": list(cases)})
    lines = [[word.strip() for word in line.strip("|").split("|")]
             for line in text.splitlines()]
    return lines[0], {row[0]: row[1:] for row in lines[2:]}


class TableTest(unittest.TestCase):

    def test_the_fastest_is_marked_and_what_is_not_told_apart(self):
        _, rows = rows_of(case("", *range(20, 26)),
                          case("ring", *range(10, 16)),
                          case("all_pairs", *range(14, 20)),
                          case("one_shot", *range(30, 36)))
        self.assertEqual(rows["ring"], ["**12.5**"])
        self.assertEqual(rows["all_pairs"], ["16.5\\*"])
        self.assertEqual(rows["one_shot"], ["32.5"])

    def test_what_ringpipe_takes_by_itself_is_never_the_fastest(self):
        _, rows = rows_of(case("", 1, 1, 1), case("ring", 2, 2, 2))
        self.assertEqual(rows["= by itself"], ["1"])
        self.assertEqual(rows["ring"], ["**2**"])

    def test_a_column_for_each_number_of_ranks_and_size(self):
        head, rows = rows_of(case("ring", 1, ranks=8), case("ring", 2),
                             case("tree", 3, size=1 << 20))
        self.assertEqual(head, ["us, allreduce, host", "64K x 2", "1M x 2", "64K x 8"])
        self.assertEqual(rows["tree"], ["–", "**3**", "–"])

    def test_a_turn_that_failed_is_left_out(self):
        _, rows = rows_of(case("ring"), case("tree", 3))
        self.assertEqual(rows["ring"], ["–"])


class ChoiceTest(unittest.TestCase):

    def choice(self, *cases):
        return ALGORITHMS.choice({"device": "host", "rounds": 4, "cases": list(cases)})

    def test_what_was_best_before_is_compared_afterwards(self):
        # "tree" is the fastest in the second and fourth round, by luck.
        text = self.choice(case("", 10, 10, 10, 10), case("ring", 8, 9, 8, 9),
                           case("tree", 9, 1, 9, 1))
        self.assertIn("1 of 1 columns", text)

    def test_a_bad_choice_is_listed_with_what_would_have_been_better(self):
        text = self.choice(case("", 12, 12, 12, 12), case("ring", 10, 10, 10, 10),
                           case("", 5, 5, size=1 << 20),
                           case("ring", 5, 5, size=1 << 20))
        self.assertIn("1 of 2 columns", text)
        self.assertIn("64K x 2: 1.20 of ring", text)

    def test_a_round_that_failed_keeps_its_place(self):
        # Without it "ring" would be 8 in the rounds that are compared.
        text = self.choice(case("", 10, 10, 10, 10), case("ring", None, 10, 8, 10))
        self.assertIn("1 of 1 columns", text)

    def test_one_round_says_nothing(self):
        self.assertEqual(self.choice(case("", 1), case("ring", 2)), "")


class ReportTest(unittest.TestCase):

    def report(self, text):
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            file.write(text)
            file.flush()
            return subprocess.run([sys.executable, str(SCRIPT), "--report", file.name],
                                  capture_output=True, text=True, check=False)

    def test_a_saved_run_is_printed_again(self):
        document = {"device": "soft", "rounds": 1, "cases": [case("ring", 7)]}
        done = self.report(json.dumps(document))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("| ring | **7** |", done.stdout)

    def test_another_file_is_an_error_that_names_it(self):
        for text in ("", "[]", '{"cases": [{}]}'):
            done = self.report(text)
            self.assertEqual(done.returncode, 1)
            self.assertIn("is no file of its own", done.stderr)


if __name__ == "__main__":
    unittest.main()
