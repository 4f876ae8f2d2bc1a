"""A job of check_collectives on the guest's devices."""

import itertools
import os
import time

from tests.launch.job import Process
from tests.rdma_guest import fabric

PATIENCE_S = 400  # emulated, on a busy machine; checks.py has a limit of its own
_ports = itertools.count(29600)


class Ranks:
    """`count` ranks, shared out among the devices: the first half of them on the
    first host, the others on the second, where there are two."""

    def __init__(self, program, count, arguments, device=None, prefix=(),
                 environment=None):
        root = f"127.0.0.1:{next(_ports)}"
        self.processes = []
        try:
            for rank in range(count):
                self.processes.append(Process(
                    [*prefix, program, *arguments],
                    {
                        "PATH": os.environ["PATH"],
                        "RINGPIPE_RANK": str(rank),
                        "RINGPIPE_SIZE": str(count),
                        "RINGPIPE_ROOT": root,
                        "RINGPIPE_SECRET": "a secret of this test",
                        "RINGPIPE_HOST_MEMORY": "never",
                        **self._place(rank, count, device),
                        **(environment or {}),
                    },
                    PATIENCE_S))
        except BaseException:
            self.close()
            raise

    @staticmethod
    def _place(rank, count, device):
        """The variables that say where a rank is."""
        devices = fabric.devices()
        if device:
            return {"RINGPIPE_DEVICE": device}
        if not fabric.has_two_hosts():
            return {"RINGPIPE_DEVICE": devices[0].name}
        host = 2 * rank // count
        return {"RINGPIPE_DEVICE": ",".join(own.name for own in devices[host::2]),
                "RINGPIPE_HOST_ID": f"host {host}"}

    def wait_until_running(self):
        for process in self.processes:
            process.wait_for("(?m)^running$")

    def finish(self):
        """Waits for the end of all; returns after how many seconds it came."""
        start = time.monotonic()
        for process in self.processes:
            process.finish()
        return time.monotonic() - start

    def statuses(self):
        return [process.returncode for process in self.processes]

    def text(self):
        return "".join(f"--- rank {rank}: {process.returncode}\n"
                       f"{process.stdout}{process.stderr}"
                       for rank, process in enumerate(self.processes))

    def close(self):
        for process in self.processes:
            process.kill()
            process.close()
        self.processes = []
