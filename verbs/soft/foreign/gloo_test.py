"""Debian's gloo over its ibverbs transport."""

import contextlib
import os
import sys
import tempfile
import time
import unittest

from verbs.soft.foreign import programs

_program = None  # from the command line


class GlooTest(unittest.TestCase):

    def _allreduce(self, size, link_layer='ethernet'):
        deadline = time.monotonic() + programs.PATIENCE_S
        with contextlib.ExitStack() as stack:
            store = stack.enter_context(
                tempfile.TemporaryDirectory(dir=os.environ['TEST_TMPDIR']))
            ranks = [stack.enter_context(programs.Program(
                [_program, rank, size, store], link_layer))
                     for rank in range(size)]
            programs.wait_for_all(ranks, deadline)
            for rank, program in enumerate(ranks):
                self.assertIn(f'rank {rank}: correct', program.output())

    def test_allreduce_of_2_ranks(self):
        self._allreduce(2)

    def test_allreduce_of_4_ranks(self):
        self._allreduce(4)

    def test_allreduce_of_8_ranks(self):
        self._allreduce(8)

    def test_allreduce_of_2_ranks_on_infiniband(self):
        self._allreduce(2, 'infiniband')


if __name__ == '__main__':
    _program = os.path.abspath(sys.argv.pop(2))
    programs.main()
