"""torch's own tests of its process groups (distributed_test.py, of python3-torch), four
ranks, over ringpipe: each ends as expected.txt says.

    torch_own_test EXPECTED [--backend gloo] [TEST...]

Prints a line of expected.txt for each, and at the end the lines that differ. The tests
are collected as gloo's, so that those that are for gloo alone run too.
"""

import argparse
import os
import re
import sys
import tempfile
import types
import unittest

RANKS = 4


def import_torchs_tests(folder):
    """Their module, which reads variables and wants a package that Debian has not."""
    expecttest = types.ModuleType("expecttest")
    expecttest.ACCEPT = False
    expecttest.TestCase = unittest.TestCase
    sys.modules["expecttest"] = expecttest
    os.environ.update(BACKEND="gloo", WORLD_SIZE=str(RANKS), TEMP_DIR=folder, OMP_NUM_THREADS="1")
    for name in ("barrier", "test_dir"):
        os.mkdir(f"{folder}/{name}")
    import torch  # pylint: disable=import-outside-toplevel
    from torch.testing._internal.distributed import (  # pylint: disable=import-outside-toplevel
        distributed_test)
    torch.set_num_threads(1)
    return torch, distributed_test


def case_of(torch, module):
    """The test case, whose ranks are forked: they need not import torch."""

    class OwnTest(module.TestDistBackend, module.DistributedTest._DistTestBase):

        def setUp(self):
            super().setUp()
            self._start_processes(torch.multiprocessing.get_context("fork").Process)

    return OwnTest


def one_order(reason):
    """Of what is printed as a set, by name; on one line."""
    return re.sub(r"\{(.*?)\}", lambda found: "{%s}" % ", ".join(sorted(found[1].split(", "))),
                  " ".join(reason.split()))


class Outcomes(unittest.TestResult):
    """{test: its line}, each printed as soon as it is known."""

    def __init__(self):
        super().__init__()
        self.lines = {}

    def _add(self, test, outcome):
        name = test.id().rpartition(".")[2]
        self.lines[name] = f"{name} {outcome}"
        print(self.lines[name], flush=True)

    def addSuccess(self, test):
        self._add(test, "pass")

    def addSkip(self, test, reason):
        self._add(test, "skip: " + one_order(reason))

    def addError(self, test, error):
        print(self._exc_info_to_string(error, test), file=sys.stderr, flush=True)
        self._add(test, "fail")

    addFailure = addError


def read(path):
    """{test: line}."""
    with open(path, encoding="utf-8") as file:
        lines = [line.rstrip("\n") for line in file if line.strip() and not line.startswith("#")]
    return {line.partition(" ")[0]: line for line in lines}


def main(options):
    expected = read(options.expected)
    with tempfile.TemporaryDirectory() as folder:
        torch, module = import_torchs_tests(folder)
        if options.backend == "ringpipe":
            import ringpipe.torch  # pylint: disable=import-outside-toplevel,unused-import
        module.BACKEND = options.backend
        case = case_of(torch, module)
        names = options.tests or unittest.defaultTestLoader.getTestCaseNames(case)
        outcomes = Outcomes()
        for name in names:
            # A reason of this project's, for which it is not run.
            if options.backend == "ringpipe" and " skip: ringpipe: " in expected.get(name, ""):
                outcomes.lines[name] = expected[name]
            else:
                unittest.TestSuite([case(name)]).run(outcomes)
    differing = [name for name in names if outcomes.lines[name] != expected.get(name)]
    if not options.tests:
        differing += sorted(set(expected) - set(names))
    for name in differing:
        print(f"expected: {expected.get(name, 'no such test')}\n"
              f"found:    {outcomes.lines.get(name, 'no such test')}")
    passed = sum(line.endswith(" pass") for line in outcomes.lines.values())
    print(f"{len(outcomes.lines)} tests, {passed} pass, {len(differing)} not as expected")
    return 1 if differing else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("expected", help="expected.txt")
    parser.add_argument("--backend", default="ringpipe")
    parser.add_argument("tests", nargs="*")
    sys.exit(main(parser.parse_args()))
