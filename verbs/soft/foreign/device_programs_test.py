"""ibv_devices and ibv_devinfo, of Debian's ibverbs-utils."""

import re
import unittest

from verbs.soft.foreign import programs


def _facts(text):
    """{name: value} of ibv_devinfo's "name:  value" lines."""
    return dict(re.findall(r'^\s*([\w\[\] ]+?):\s+(.*?)\s*$', text,
                           re.MULTILINE))


class DeviceProgramsTest(unittest.TestCase):

    def test_ibv_devices_lists_soft0_with_a_guid(self):
        text = programs.run(['ibv_devices'])
        self.assertRegex(text, r'(?m)^\s*soft0\s+[0-9a-f]{16}$')
        self.assertNotRegex(text, r'(?m)^\s*soft0\s+0{16}$')

    def test_ibv_devinfo_lists_soft0_alone(self):
        self.assertRegex(programs.run(['ibv_devinfo', '-l']),
                         r'\A1 HCAs? found:\s+soft0\s*\Z')

    def test_ibv_devinfo_finds_soft0_by_name_and_no_other(self):
        programs.run(['ibv_devinfo', '-d', 'soft0', '-i', '1'])
        with self.assertRaises(AssertionError):
            programs.run(['ibv_devinfo', '-d', 'soft1'])
        with self.assertRaises(AssertionError):
            programs.run(['ibv_devinfo', '-d', 'soft0', '-i', '2'])

    def _verbose_facts(self, link_layer):
        text = programs.run(['ibv_devinfo', '-v'], link_layer)
        self.assertNotRegex(text, r'(?i)fail|error|unknown')
        facts = _facts(text)
        self.assertEqual(facts['hca_id'], 'soft0')
        self.assertEqual(facts['transport'], 'InfiniBand (0)')
        self.assertEqual(facts['phys_port_cnt'], '1')
        self.assertEqual(facts['state'], 'PORT_ACTIVE (4)')
        self.assertEqual(facts['phys_state'], 'LINK_UP (5)')
        self.assertEqual(facts['active_mtu'], '4096 (5)')
        self.assertEqual(facts['atomic_cap'], 'ATOMIC_HCA (1)')
        for limit in ('max_qp', 'max_qp_wr', 'max_sge', 'max_sge_rd', 'max_cq',
                      'max_cqe', 'max_mr', 'max_pd', 'max_qp_rd_atom',
                      'max_qp_init_rd_atom', 'max_srq', 'max_srq_wr',
                      'max_srq_sge', 'max_ah', 'gid_tbl_len', 'pkey_tbl_len'):
            self.assertGreater(int(facts[limit]), 0, limit)
        self.assertGreaterEqual(int(facts['max_msg_sz'], 0), 1 << 30)
        return text, facts

    def test_ibv_devinfo_v_on_ethernet_says_gids_and_no_lid(self):
        text, facts = self._verbose_facts('ethernet')
        self.assertEqual(facts['link_layer'], 'Ethernet')
        self.assertEqual(facts['port_lid'], '0')
        # IPv4-mapped, RoCE v2.
        self.assertRegex(
            text, r'GID\[\s*0\]:\s+(::ffff:\d+\.\d+\.\d+\.\d+|[0-9a-f:]+), '
            r'RoCE v2')

    def test_ibv_devinfo_v_on_infiniband_says_a_lid(self):
        _, facts = self._verbose_facts('infiniband')
        self.assertEqual(facts['link_layer'], 'InfiniBand')
        self.assertGreater(int(facts['port_lid']), 0)


if __name__ == '__main__':
    programs.main()
