"""Debian's Open MPI through UCX, over its reliable-connected transport."""

import os
import sys
import unittest

from verbs.soft.foreign import programs

_program = None  # from the command line


class MpiTest(unittest.TestCase):

    def _allreduce(self, size, link_layer):
        text = programs.run(
            ['mpirun.openmpi', '--allow-run-as-root', '--oversubscribe',
             '-np', size,
             # UCX alone, and no other way between the ranks.
             '--mca', 'pml', 'ucx', '--mca', 'osc', '^ucx',
             '--mca', 'pml_ucx_tls', 'any', '--mca', 'pml_ucx_devices', 'any',
             '--mca', 'btl', '^vader,tcp,openib,uct',
             '--mca', 'plm_rsh_agent', '/bin/false',
             '-x', 'UCX_TLS', '-x', 'UCX_NET_DEVICES', '-x', 'UCX_LOG_LEVEL',
             '-x', 'LD_LIBRARY_PATH', '-x', 'LD_PRELOAD', _program],
            link_layer,
            {'UCX_TLS': 'rc,self', 'UCX_NET_DEVICES': 'soft0:1',
             'UCX_LOG_LEVEL': 'warn', 'UCX_WARN_UNUSED_ENV_VARS': 'n',
             'HOME': os.environ['TEST_TMPDIR'],
             # Short: it becomes part of the names of unix sockets.
             'TMPDIR': '/tmp'})
        self.assertIn('correct', text)
        self.assertIn(f'# {size} ranks', text)
        self.assertNotRegex(text, r'(?i)\berror\b|\bfailed\b|UCX +WARN')

    def test_allreduce_of_2_ranks(self):
        self._allreduce(2, 'ethernet')

    def test_allreduce_of_4_ranks(self):
        self._allreduce(4, 'ethernet')

    def test_allreduce_of_2_ranks_on_infiniband(self):
        self._allreduce(2, 'infiniband')

    def test_without_the_device_ucx_has_no_way_between_the_ranks(self):
        # Shows that it was this device that carried the data above.
        with self.assertRaises(AssertionError):
            programs.run(
                ['mpirun.openmpi', '--allow-run-as-root', '--oversubscribe',
                 '-np', 2, '--mca', 'pml', 'ucx', '--mca', 'pml_ucx_tls', 'any',
                 '--mca', 'pml_ucx_devices', 'any', _program], 'ethernet',
                {'UCX_TLS': 'rc,self', 'UCX_NET_DEVICES': 'soft1:1',
                 'HOME': os.environ['TEST_TMPDIR'], 'TMPDIR': '/tmp'})


if __name__ == '__main__':
    _program = os.path.abspath(sys.argv.pop(2))
    programs.main()
