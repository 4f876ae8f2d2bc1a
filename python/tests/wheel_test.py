"""The wheel is the same bytes each time, and works in a fresh virtual environment.

    wheel_test.py WHEEL MAKE_WHEEL FILE...
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import zipfile

from tests.launch import job

WHEEL, MAKE_WHEEL, *FILES = (pathlib.Path(argument).absolute() for argument in sys.argv[1:])

# There is no numpy in that environment.
PROGRAM = """
import array
import ringpipe

def add(number):
    with ringpipe.Communicator() as comm:
        x = array.array("d", [comm.rank + number] * 1000)
        comm.allreduce(x)
        return x[999], ringpipe.__file__

if __name__ == "__main__":
    for value, path in ringpipe.spawn(add, 4, (0.5,)):
        print(value, path)
"""


class WheelTest(unittest.TestCase):

    def setUp(self):
        # A path that pip and "#!" lines stand.
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="wheel", dir="/tmp"))
        self.addCleanup(shutil.rmtree, self.folder)
        self.addCleanup(job.kill_descendants)

    def run_program(self, *command):
        environment = {"PATH": "/usr/bin:/bin", "HOME": str(self.folder),
                       "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
        process = job.Process([str(word) for word in command], environment, 120)
        self.addCleanup(process.close)
        self.addCleanup(process.kill)
        process.finish()
        self.assertEqual(process.returncode, 0, process.stdout + process.stderr)
        return process.stdout

    def test_it_works_where_it_is_installed(self):
        self.run_program("/usr/bin/python3", "-m", "venv", self.folder / "venv")
        python = self.folder / "venv/bin/python"
        self.run_program(python, "-m", "pip", "install", "--no-index", WHEEL)
        program = self.folder / "program.py"
        program.write_text(PROGRAM, encoding="utf-8")
        lines = self.run_program(python, program).splitlines()
        self.assertEqual(len(lines), 4)
        for line in lines:
            value, path = line.split()
            self.assertEqual(value, "8.0")
            self.assertTrue(pathlib.Path(path).is_relative_to(self.folder), path)
        self.run_program(python, "-m", "pip", "check")
        self.run_program(python, "-m", "pip", "uninstall", "-y", "ringpipe")
        self.assertEqual(list(self.folder.glob("venv/lib/*/site-packages/ringpipe*")), [])

    def test_the_same_files_are_the_same_wheel(self):
        copies = []
        for number, file in enumerate(reversed(FILES)):
            inside = str(file).rpartition("/ringpipe/")[2]
            copies.append(self.folder / str(number) / "ringpipe" / inside)
            copies[-1].parent.mkdir(parents=True)
            shutil.copy(file, copies[-1])
            copies[-1].chmod(0o600)
            os.utime(copies[-1], (number, number))
        again = self.folder / WHEEL.name
        subprocess.run([sys.executable, MAKE_WHEEL, again, *copies], check=True, umask=0o77,
                       env={"PATH": "/usr/bin:/bin", "TZ": "Asia/Tokyo"}, timeout=100)
        self.assertEqual(again.read_bytes(), WHEEL.read_bytes())

    def test_it_promises_no_older_c_library_than_it_needs(self):
        wheel = self.folder / re.sub(r"manylinux_\d+_\d+", "manylinux_2_17", WHEEL.name)
        made = subprocess.run([sys.executable, MAKE_WHEEL, wheel, *FILES], check=False, text=True,
                              stderr=subprocess.PIPE, timeout=100)
        self.assertRegex(made.stderr, r"needs the C library 2\.\d+ or newer.*-manylinux_2_17_")
        self.assertNotEqual(made.returncode, 0)
        self.assertFalse(wheel.exists())

    def test_what_is_in_it(self):
        with zipfile.ZipFile(WHEEL) as wheel:
            names = wheel.namelist()
            libraries = {name: wheel.getinfo(name).file_size for name in names if ".so" in name}
        package = pathlib.Path(__file__).parents[1] / "ringpipe"
        for file in package.rglob("*"):
            if file.is_file() and file.parent.name != "__pycache__":
                self.assertIn(f"ringpipe/{file.relative_to(package)}", names)
        self.assertIn("ringpipe/chainermn/__init__.py", names)
        self.assertEqual(sorted(libraries), ["ringpipe/_native.abi3.so",
                                             "ringpipe/libringpipe.so.0"])
        self.assertLess(libraries["ringpipe/libringpipe.so.0"], 12 << 20, "it is not stripped")


if __name__ == "__main__":
    del sys.argv[1:]
    job.adopt_orphans()
    unittest.main()
