"""The extension needs of Python what python_symbols.txt lists, all of it of the stable
ABI, and no newer C library than its wheel says.

    symbols_test.py EXTENSION LIBRARY LIST

A name that is to be added: look it up in Python's documentation, "Stable ABI"; it has to
be there since 3.11 or before.
"""

import platform
import re
import subprocess
import sys
import unittest

LIST, LIBRARY, EXTENSION = (sys.argv.pop() for _ in range(3))
# Debian 12's, of manylinux_2_36.
NEWEST_GLIBC = (2, 36)


def symbols(path, *options):
    return subprocess.run(["nm", "--dynamic", *options, path], check=True, text=True,
                          stdout=subprocess.PIPE).stdout.split("\n")


class SymbolsTest(unittest.TestCase):

    def test_of_python_only_what_is_listed(self):
        names = [line.split()[-1] for line in symbols(EXTENSION, "--undefined-only") if line]
        # What headers before 3.13 make of "PyArg_Parse" where lengths are Py_ssize_t.
        names = [re.sub(r"^_(Py\w+)_SizeT$", r"\1", name) for name in names]
        needed = sorted(name for name in names if name.startswith(("Py", "_Py")))
        with open(LIST, encoding="utf-8") as file:
            listed = file.read().split()
        self.assertEqual(needed, listed)

    def test_it_exports_the_module_alone(self):
        self.assertEqual([line.split()[-1] for line in symbols(EXTENSION, "--defined-only",
                                                               "--extern-only") if line],
                         ["PyInit__native"])

    def test_the_library_knows_nothing_of_python(self):
        self.assertEqual([line for line in symbols(LIBRARY) if " Py" in line], [])

    def test_the_c_library_is_no_newer_than_the_wheel_says(self):
        if tuple(map(int, platform.libc_ver()[1].split("."))) > NEWEST_GLIBC:
            self.skipTest("built on a newer system than the wheels that others get")
        for path in (EXTENSION, LIBRARY):
            versions = {tuple(map(int, version.split("."))) for line in symbols(path)
                        for version in re.findall(r"@GLIBC_([\d.]+)", line)}
            self.assertLessEqual(max(versions), NEWEST_GLIBC, path)


if __name__ == "__main__":
    unittest.main()
