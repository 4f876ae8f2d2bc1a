"""The ping-pong programs of Debian's ibverbs-utils."""

import unittest

from verbs.soft.foreign import programs

ITERATIONS = 1000


class PingpongTest(unittest.TestCase):

    def _pingpong(self, transport, *options, iterations=ITERATIONS):
        for link_layer in programs.LINK_LAYERS:
            # RoCE needs a GID index; InfiniBand has both ways.
            for path in ([['-g', '0']] if link_layer == 'ethernet'
                         else [[], ['-g', '0']]):
                arguments = [f'ibv_{transport}_pingpong', '-d', 'soft0', '-n',
                             iterations, *path, *options]
                with self.subTest(arguments=arguments, link_layer=link_layer):
                    for text in programs.run_pair(arguments, link_layer):
                        self.assertIn(f'{iterations} iters in', text)
                        self.assertNotRegex(text, r'(?i)fail|invalid data|'
                                            r"couldn't")

    def test_rc_polling(self):
        self._pingpong('rc', '-c')

    def test_rc_with_events(self):
        self._pingpong('rc', '-c', '-e')

    def test_rc_with_messages_of_several_mtus(self):
        self._pingpong('rc', '-c', '-s', 1 << 20, '-m', 2048, iterations=100)

    def test_rc_through_the_extended_interface(self):
        self._pingpong('rc', '-c', '-N')

    def test_uc_polling(self):
        self._pingpong('uc', '-c')

    def test_uc_with_events(self):
        self._pingpong('uc', '-c', '-e')

    def test_ud_polling(self):
        self._pingpong('ud', '-c')

    def test_ud_with_events(self):
        self._pingpong('ud', '-c', '-e')

    def test_srq_polling(self):
        self._pingpong('srq', '-c')

    def test_srq_with_events(self):
        self._pingpong('srq', '-c', '-e')


if __name__ == '__main__':
    programs.main()
