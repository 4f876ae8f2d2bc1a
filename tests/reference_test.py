"""docs/reference.md has every environment variable, with its true limits and
default. Run: reference_test.py REFERENCE ENVIRONMENT_CC ENVIRONMENT_H.
"""

import re
import sys
import unittest


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


HEADER = read(sys.argv.pop())
SOURCE = read(sys.argv.pop())
REFERENCE = read(sys.argv.pop())


def number(text):
    """The value of a C++ constant: "60'000", "128 * 1024", "16 << 20"."""
    text = text.replace("'", "")
    assert re.fullmatch(r"[-0-9 *<]+", text), text
    return eval(text)


def documented():
    """The tables' rows: from the variable's name to its other cells."""
    section = re.search(r"^## Environment variables\n(.*?)^## ", REFERENCE,
                        re.M | re.S)[1]
    rows = re.findall(r"^\| `(\w+)`[^|]*\|([^|]*)\|([^|]*)\|([^|]*)\|$",
                      section, re.M)
    return {name: cells for name, *cells in rows}


def table_of_source():
    return re.search(r"kVariables = \{\n(.*?)\n\};", SOURCE, re.S)[1]


class ReferenceTest(unittest.TestCase):

    def test_has_every_variable_and_no_other(self):
        names = re.findall(r'Variable\{\s*"(\w+)"', table_of_source())
        self.assertGreater(len(names), 20)
        self.assertEqual(sorted(documented()), sorted(names))

    def test_names_the_variables_of_nccl(self):
        found = re.findall(r'Variable\{\s*"(\w+)"[^"]*"(NCCL_\w+)"',
                           table_of_source())
        self.assertEqual(len(found), 3)
        for name, foreign in found:
            self.assertIn(foreign, documented()[name][2])

    def test_has_the_limits_and_defaults_of_whole_numbers(self):
        integers = re.findall(
            r'"(\w+)",\s*Integer\{&Environment::(\w+), ([^,}]+),\s*([^,}]+)',
            table_of_source())
        self.assertGreater(len(integers), 8)
        for name, member, least, most in integers:
            _, values, default = documented()[name]
            with self.subTest(name):
                value = re.search(rf"int64_t {member} = ([^;]+);", HEADER)[1]
                self.assertEqual(number(default), number(value))
                numbers = re.findall(r"\d+", values)
                self.assertIn(str(number(least)), numbers)
                most = {"kDayMs": "24 * 60 * 60 * 1000"}.get(most, most)
                if "numeric_limits" not in most:
                    self.assertIn(str(number(most)), numbers)


if __name__ == "__main__":
    unittest.main()
