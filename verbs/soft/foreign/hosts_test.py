"""Programs of others between hosts, over the software device's network path."""

import re
import time
import unittest

from tests.hosts.hosts import Hosts
from verbs.soft.foreign import programs

SECRET = {'RINGPIPE_SECRET': 'a secret of this test'}
PORT = 18600

# perftest's queue pairs: 4.096 us * 2^14, 1 + 7 times; and what a busy machine
# adds.
QP_TIMEOUT_S = 0.54
SLACK_S = 10


class HostsTest(unittest.TestCase):

    def setUp(self):
        self.hosts = Hosts(2)
        self.addCleanup(self.hosts.close)

    def _start(self, host, arguments, environment=SECRET):
        program = programs.Program(arguments, environment=environment,
                                   host=self.hosts.command(host, []))
        self.addCleanup(program.__exit__)
        return program

    def _wait_for(self, condition, program):
        deadline = time.monotonic() + programs.PATIENCE_S
        while not condition():
            self.assertLess(time.monotonic(), deadline, program)
            self.assertFalse(program.ended(), program)
            time.sleep(0.01)

    def _listens(self, host):
        table = self.hosts.run(host, ['cat', '/proc/self/net/tcp',
                                      '/proc/self/net/tcp6'])
        return re.search(rf':{PORT:04X} [0-9A-F]+:0000 0A ', table)

    def _start_pair(self, arguments):
        arguments = [arguments[0], '-d', 'soft0', '-p', PORT, *arguments[1:]]
        server = self._start(0, arguments)
        self._wait_for(lambda: self._listens(0), server)
        return server, self._start(1, [*arguments, self.hosts.address(0)])

    def _run_pair(self, arguments):
        server, client = self._start_pair(arguments)
        deadline = time.monotonic() + programs.PATIENCE_S
        for program in (client, server):
            self.assertEqual(program.wait(deadline), 0, f'{client}\n{server}')
        return server.output(), client.output()

    def _check_pingpong(self, transport, *options):
        iterations, size = 500, 4000
        before = [self.hosts.bytes(host) for host in range(2)]
        for text in self._run_pair([f'ibv_{transport}_pingpong', '-g', 0, '-n',
                                    iterations, '-s', size, *options]):
            self.assertIn(f'{iterations} iters in', text)
        self._expect_bytes(before, iterations * size, iterations * size)

    def _expect_bytes(self, before, to_server, to_client):
        for host, (received, sent) in enumerate(((to_server, to_client),
                                                 (to_client, to_server))):
            now = self.hosts.bytes(host)
            self.assertGreaterEqual(now[0] - before[host][0], received)
            self.assertGreaterEqual(now[1] - before[host][1], sent)

    def test_rc_pingpong(self):
        self._check_pingpong('rc', '-c')

    def test_rc_pingpong_with_events(self):
        self._check_pingpong('rc', '-c', '-e')

    def test_uc_pingpong(self):
        self._check_pingpong('uc', '-c')

    def test_ud_pingpong(self):
        self._check_pingpong('ud', '-c')

    def test_srq_pingpong(self):
        # 16 queue pairs.
        self._check_pingpong('srq', '-c')

    def _check_perftest(self, operation, kind):
        size, iterations = 65536, 500
        before = [self.hosts.bytes(host) for host in range(2)]
        _, text = self._run_pair([f'ib_{operation}_{kind}', '-F', '-x', 0, '-s',
                                  size, '-n', iterations])
        self.assertRegex(text, rf'(?m)^ *{size} +{iterations} ')
        wire = size * iterations
        if operation == 'read':
            self._expect_bytes(before, 0, wire)
        elif kind == 'lat':
            self._expect_bytes(before, wire, wire)
        else:
            self._expect_bytes(before, wire, 0)

    def test_perftest(self):
        for operation in ('write', 'send', 'read'):
            for kind in ('bw', 'lat'):
                with self.subTest(operation=operation, kind=kind):
                    self._check_perftest(operation, kind)

    def test_atomics(self):
        _, text = self._run_pair(['ib_atomic_bw', '-F', '-x', 0, '-n', 500])
        self.assertRegex(text, r'(?m)^ *8 +500 ')

    def test_a_cut_link_fails_the_side_with_requests(self):
        _, client = self._start_pair(['ib_write_bw', '-F', '-x', 0, '-s', 65536,
                                      '-D', 60])
        before = self.hosts.bytes(1)[1]
        self._wait_for(lambda: self.hosts.bytes(1)[1] > before + (20 << 20),
                       client)
        self.hosts.cut(0)
        start = time.monotonic()
        status = client.wait(start + programs.PATIENCE_S)
        self.assertLess(time.monotonic() - start, QP_TIMEOUT_S + SLACK_S)
        self.assertNotEqual(status, 0, client)
        self.assertRegex(client.output(), r'(?i)status 12\b|retry', client)
        # And new connections work when the link is back.
        self.hosts.restore(0)
        self._check_perftest('write', 'bw')

    def test_a_wrong_secret_keeps_out(self):
        arguments = ['ibv_rc_pingpong', '-d', 'soft0', '-g', 0, '-p', PORT]
        server = self._start(0, arguments)
        self._wait_for(lambda: self._listens(0), server)
        client = self._start(1, [*arguments, self.hosts.address(0)],
                             {'RINGPIPE_SECRET': 'another'})
        status = client.wait(time.monotonic() + programs.PATIENCE_S)
        self.assertNotEqual(status, 0, client)

    def test_events_of_the_port(self):
        watch = self._start(0, ['ibv_asyncwatch', '-d', 'soft0'])
        self._wait_for(lambda: 'async event' in watch.output(), watch)
        self.hosts.cut(0)
        self._wait_for(lambda: 'IBV_EVENT_PORT_ERR' in watch.output(), watch)
        self.hosts.restore(0)
        self._wait_for(lambda: 'IBV_EVENT_PORT_ACTIVE' in watch.output(), watch)


if __name__ == '__main__':
    programs.main()
