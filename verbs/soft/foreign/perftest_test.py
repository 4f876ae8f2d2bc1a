"""Debian's perftest: bandwidth and latency programs of one operation.

    perftest_test.py SOFTVERBS OPERATION FewSizesTest|AllSizesTest

OPERATION is write, send, read or atomic. All sizes take minutes.
"""

import re
import sys
import unittest

from verbs.soft.foreign import programs

# What -a runs: 2 B to 8 MiB. For each, perftest takes 0.2 s to look how fast the
# clock is.
ALL_SIZES = [1 << i for i in range(1, 24)]

# perftest asks for a completion of every 64th request, and with several queue
# pairs counts each as 64: anything but a multiple makes it count wrong and wait
# for ever, in its own loop.
DEPTH = 64
ITERATIONS = 2 * DEPTH

_operation = None  # from the command line

# On a busy machine perftest cannot tell the rate of the processor's clock. It says so
# in the middle of a row, and prints "inf" or 0 for what it measured then.
_NO_CLOCK = re.compile(r'Correlation coefficient r\^2: [\d.]+ < [\d.]+\n?')


def _rows(text):
    """The rows of numbers of a report: bytes, iterations and what was measured.
    """
    rows = []
    for line in _NO_CLOCK.sub('\n', text).splitlines():
        if re.fullmatch(r'\s*\d+\s+\d+(\s+(-?(inf|nan)|[-\d.]+))+\s*', line):
            rows.append([float(field) for field in line.split()])
    return rows


class PerftestCase(unittest.TestCase):

    def _run(self, kind, *options, sizes, iterations=ITERATIONS,
             link_layers=programs.LINK_LAYERS):
        for link_layer in link_layers:
            arguments = [f'ib_{_operation}_{kind}', '-d', 'soft0', '-F', '-n',
                         iterations, *options]
            if link_layer == 'ethernet':
                arguments += ['-x', '0']
            with self.subTest(arguments=arguments, link_layer=link_layer):
                server, client = programs.run_pair(arguments, link_layer)
                for text in (server, client):
                    self.assertNotRegex(
                        text, r'(?i)\bfail|error|completion with|unable|'
                        r"couldn't|problems")
                    self.assertIn('Link type       : ' +
                                  ('Ethernet' if link_layer == 'ethernet'
                                   else 'IB'), text)
                rows = _rows(client)
                self.assertEqual([row[0] for row in rows], sizes, client)
                for row in rows:
                    self.assertGreater(row[1], 0, client)
                    # Columns 3 and 4: average bandwidth, average latency or
                    # typical one; none can be 0.
                    if not _NO_CLOCK.search(client):
                        self.assertGreater(max(row[2:]), 0, client)


class FewSizesTest(PerftestCase):

    def _one_size(self):
        return ([], [8]) if _operation == 'atomic' else (
            ['-s', 65536], [65536])

    def test_bandwidth_in_both_directions(self):
        size, sizes = self._one_size()
        self._run('bw', '-b', '-t', DEPTH, *size, sizes=sizes)

    def test_the_older_way_to_post(self):
        size, sizes = self._one_size()
        for kind in ('bw', 'lat'):
            self._run(kind, '--use_old_post_send', *size, sizes=sizes)

    def test_what_only_this_operation_has(self):
        if _operation == 'atomic':
            for kind in ('bw', 'lat'):
                self._run(kind, '-A', 'CMP_AND_SWAP', sizes=[8])
        elif _operation == 'send':
            # Sleeping on events; other transports.
            self._run('bw', '-e', '-s', 4096, sizes=[4096])
            self._run('lat', '-e', '-s', 4096, sizes=[4096])
            self._run('lat', '-c', 'UC', '-s', 4096, sizes=[4096])
            self._run('lat', '-c', 'UD', '-s', 1024, sizes=[1024])
        elif _operation == 'write':
            self._run('bw', '-c', 'UC', '-s', 4096, sizes=[4096])
            self._run('lat', '-I', 64, '-s', 64, sizes=[64])
        else:
            self._run('bw', '-o', 1, '-s', 4096, sizes=[4096])
            self._run('lat', '-e', '-s', 4096, sizes=[4096])

    def test_the_smallest_and_the_largest_message(self):
        for size in [] if _operation == 'atomic' else (ALL_SIZES[0], ALL_SIZES[-1]):
            for kind in ('bw', 'lat'):
                self._run(kind, '-s', size, sizes=[size],
                          link_layers=['ethernet'])


class AllSizesTest(PerftestCase):

    def _all_sizes(self):
        if _operation == 'atomic':
            return [], [8]
        return ['-a'], ALL_SIZES

    def test_bandwidth_of_all_sizes(self):
        options, sizes = self._all_sizes()
        self._run('bw', '-t', DEPTH, *options, sizes=sizes,
                  link_layers=['ethernet'])

    def test_latency_of_all_sizes(self):
        options, sizes = self._all_sizes()
        self._run('lat', *options, sizes=sizes, iterations=50)

    def test_bandwidth_of_several_queue_pairs(self):
        options, sizes = self._all_sizes()
        self._run('bw', '-q', 4, '-t', DEPTH, *options, sizes=sizes,
                  link_layers=['infiniband'])


if __name__ == '__main__':
    _operation = sys.argv.pop(2)
    programs.main()
