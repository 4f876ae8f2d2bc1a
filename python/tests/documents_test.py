"""The Python programs of the documents print what the documents say.

    documents_test.py DOCUMENT...
"""

import os
import pathlib
import re
import sys
import tempfile
import unittest

import ringpipe
from tests.launch import job

DOCUMENTS = [pathlib.Path(argument).absolute() for argument in sys.argv[1:]]


class DocumentsTest(unittest.TestCase):

    def setUp(self):
        self.addCleanup(job.kill_descendants)

    def check(self, program):
        environment = {**os.environ,
                       "PYTHONPATH": str(pathlib.Path(ringpipe.__file__).parents[1])}
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "program.py"
            file.write_text(program, encoding="utf-8")
            process = job.Process([sys.executable, str(file)], environment)
            self.addCleanup(process.close)
            self.addCleanup(process.kill)
            process.finish()
        self.assertEqual(process.stdout, "[6.0, 6.0, 6.0, 6.0]\n", process.stderr)

    def test_every_program(self):
        for document in DOCUMENTS:
            programs = re.findall(r"^```python\n(.*?)^```$", document.read_text(encoding="utf-8"),
                                  re.MULTILINE | re.DOTALL)
            self.assertEqual(len(programs), 1, document)
            with self.subTest(document.name):
                self.check(programs[0])


if __name__ == "__main__":
    del sys.argv[1:]
    job.adopt_orphans()
    unittest.main()
