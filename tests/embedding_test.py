"""The programs in C and C++ of docs/embedding.md print what it says, by its commands.

    embedding_test.py INSTALL_TREE EMBEDDING_MD

In a section, a file is what is fenced after its name, a command what is indented, and the
output what is fenced as text, whose lines may come in any order.
"""

import os
import pathlib
import re
import shutil
import sys
import tempfile
import unittest

from tests.launch import job

INSTALL_TREE, DOCUMENT = (pathlib.Path(argument).absolute() for argument in sys.argv[1:3])
# What makes the archive has been run, and is a target of its own.
PREAMBLE = """
set -euo pipefail
bazel() { [[ $* == 'build //engine:install' ]]; }
"""
ENVIRONMENT = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent"}


class Section:
    """What a section of the document asks its reader to do."""

    def __init__(self, title):
        text = DOCUMENT.read_text(encoding="utf-8")
        _, _, rest = text.partition(f"\n## {title}\n")
        text = re.split(r"\n## ", rest)[0]
        # Named in the last place before it.
        self.files = {
            re.findall(r"`(\w+\.\w+)`", text[:fenced.start()])[-1]: fenced[1]
            for fenced in re.finditer(r"^```(?!text)\w+\n(.*?)^```$", text,
                                      re.MULTILINE | re.DOTALL)}
        self.output = re.search(r"^```text\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)[1]
        text = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
        self.commands = "".join(re.findall(r"^    (.*\n)", text, re.MULTILINE))


class EmbeddingTest(unittest.TestCase):

    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        archive = self.folder / "bazel-bin/engine/ringpipe.tar"
        archive.parent.mkdir(parents=True)
        shutil.copy(INSTALL_TREE, archive)
        (self.folder / "setup").write_text("#!/bin/sh\n", encoding="utf-8")
        (self.folder / "setup").chmod(0o755)
        self.addCleanup(job.kill_descendants)

    def play(self, *sections):
        """What the last section's commands print, after the others'."""
        output = ""
        for number, section in enumerate(sections):
            for name, text in section.files.items():
                (self.folder / name).write_text(text, encoding="utf-8")
            exports = "".join(line for earlier in sections[:number]
                              for line in earlier.commands.splitlines(keepends=True)
                              if line.startswith("export "))
            script = f"cd {self.folder}\n" + re.sub(r"\bPREFIX\b", "a/prefix",
                                                    exports + section.commands)
            process = job.Process(["bash", "-c", PREAMBLE + script], ENVIRONMENT)
            self.addCleanup(process.close)
            self.addCleanup(process.kill)
            process.finish()
            self.assertEqual(process.returncode, 0, process.stdout + process.stderr)
            output, self.said = process.stdout, process.stdout + process.stderr
        return output

    def check(self, output, section):
        self.assertEqual(sorted(output.splitlines()), sorted(section.output.splitlines()),
                         self.said)

    def test_from_nothing_to_a_call_in_c(self):
        section = Section("C: from nothing to a running call")
        self.check(self.play(section), section)

    def test_cxx_with_cmake(self):
        section = Section("C++ with CMake")
        printed = self.play(Section("C: from nothing to a running call"), section)
        ranks = [line for line in printed.splitlines() if line.startswith("rank ")]
        self.check("\n".join(ranks), section)

    def test_going_on_without_a_rank_that_was_lost(self):
        section = Section("C and C++: threads, fork, failure")
        self.check(self.play(Section("C: from nothing to a running call"), section), section)


if __name__ == "__main__":
    del sys.argv[1:]
    job.adopt_orphans()
    unittest.main()
