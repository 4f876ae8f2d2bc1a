"""Runs other people's verbs programs on the software device, to a sure end."""

import contextlib
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

# For one program or pair of programs, on a machine that is busy with others.
PATIENCE_S = 100

# Both kinds of network that verbs programs are written for.
LINK_LAYERS = ('ethernet', 'infiniband')

_softverbs = None  # the wrapper's path, from the command line


def main():
    """unittest.main() for a test whose first argument is the wrapper."""
    global _softverbs
    _softverbs = os.path.abspath(sys.argv.pop(1))
    unittest.main()


def installed(program):
    """The path of `program`; an error where it is not installed, no skip."""
    path = shutil.which(program)
    if path is None:
        raise AssertionError(f'{program} is not installed: run ./setup')
    return path


def command(arguments, link_layer='ethernet'):
    """What runs the program `arguments` on the device."""
    installed(arguments[0])
    return [_softverbs, f'--link-layer={link_layer}', '--',
            *map(str, arguments)]


class Program:
    """A process, the leader of its own group, and what it printed."""

    def __init__(self, arguments, link_layer='ethernet', environment=(),
                 host=()):
        """`host` is what starts a command on another host: it goes before it.
        """
        self.arguments = [str(argument) for argument in arguments]
        self._output = tempfile.TemporaryFile(dir=os.environ['TEST_TMPDIR'])
        self._process = subprocess.Popen(
            [*host, *command(arguments, link_layer)], stdin=subprocess.DEVNULL,
            stdout=self._output, stderr=subprocess.STDOUT,
            env=dict(os.environ, **dict(environment)),
            cwd=os.environ['TEST_TMPDIR'], start_new_session=True)

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        # The whole group, also what a launcher left behind.
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self._process.wait()
        self._output.close()

    def ended(self):
        return self._process.poll() is not None

    def output(self):
        self._output.seek(0)
        return self._output.read().decode(errors='replace')

    def wait(self, deadline):
        """Returns the exit status; an AssertionError if there is none in time.
        """
        try:
            return self._process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise AssertionError(f'{self} does not end') from None

    def descriptor(self):
        """Becomes readable when the process ends; the caller closes it."""
        return os.pidfd_open(self._process.pid)

    def __str__(self):
        return f'{" ".join(self.arguments)}:\n{self.output()}'


def run(arguments, link_layer='ethernet', environment=(),
        patience_s=PATIENCE_S):
    """What a program prints that has to end with success."""
    with Program(arguments, link_layer, environment) as program:
        status = program.wait(time.monotonic() + patience_s)
        if status != 0:
            raise AssertionError(f'exit status {status} of {program}')
        return program.output()


def wait_for_all(started, deadline):
    """Returns when all `started` have ended with success.

    An AssertionError as soon as one fails, since the others may wait for it.
    """
    with contextlib.ExitStack() as stack:
        waiting = {}
        for program in started:
            descriptor = program.descriptor()
            stack.callback(os.close, descriptor)
            waiting[descriptor] = program
        while waiting:
            ready, _, _ = select.select(
                list(waiting), [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise AssertionError('do not end:\n' +
                                     '\n'.join(map(str, waiting.values())))
            for descriptor in ready:
                program = waiting.pop(descriptor)
                status = program.wait(deadline)
                if status != 0:
                    raise AssertionError(f'exit status {status} of {program}')


def free_port():
    """A TCP port at which nobody listens now."""
    with socket.socket() as probe:
        probe.bind(('', 0))
        return probe.getsockname()[1]


def _is_listening(port):
    for name in ('tcp', 'tcp6'):
        try:
            with open(f'/proc/net/{name}', encoding='ascii') as table:
                for line in list(table)[1:]:
                    _, local, _, state = line.split()[:4]
                    if state == '0A' and int(local.split(':')[1], 16) == port:
                        return True
        except FileNotFoundError:  # no IPv6
            pass
    return False


def wait_for_listener(port, program, deadline):
    """Returns when somebody listens at `port`, as `program` is about to do."""
    while not _is_listening(port):
        if program.ended():
            raise AssertionError(f'does not start: {program}')
        if time.monotonic() > deadline:
            raise AssertionError(f'does not listen: {program}')
        time.sleep(0.01)


def run_pair(arguments, link_layer='ethernet', patience_s=PATIENCE_S):
    """What server and client print, which both have to end with success.

    The client is the same command with the server's address after it, which is
    the custom of verbs programs.
    """
    deadline = time.monotonic() + patience_s
    port = free_port()
    arguments = [arguments[0], '-p', port, *arguments[1:]]
    with Program(arguments, link_layer) as server:
        wait_for_listener(port, server, deadline)
        with Program([*arguments, '127.0.0.1'], link_layer) as client:
            try:
                wait_for_all([server, client], deadline)
            except AssertionError as error:
                raise AssertionError(f'{error}\nserver: {server}\n'
                                     f'client: {client}') from None
            return server.output(), client.output()
