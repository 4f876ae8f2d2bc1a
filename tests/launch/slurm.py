"""A Slurm of one node, for as long as a test needs it: munged, slurmctld and slurmd."""

import contextlib
import os
import pathlib
import re
import shutil
import socket
import subprocess
import time

from tests.launch import job

# What each program needs of the others, and what Debian calls it.
PROGRAMS = {"munged": "munge", "sinfo": "slurm-client", "slurmctld": "slurmctld",
            "slurmd": "slurmd", "srun": "slurm-client"}
# Where Debian has daemons, which is not in everybody's PATH.
PATH = "/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin"
SECRET_BYTES = 128
# Of the node, whatever the machine has: ranks wait for each other most of the time.
PROCESSORS = 8
FIRST_WITH_CGROUPS = 24

CONFIGURATION = """\
ClusterName=throwaway
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
SchedulerType=sched/builtin
NodeName={host} NodeAddr=127.0.0.1 CPUs={processors} State=UNKNOWN
PartitionName=all Nodes={host} Default=YES MaxTime=INFINITE State=UP OverSubscribe=YES
"""


def missing():
    """The Debian packages that have to be installed before there can be a Cluster."""
    return sorted({package for program, package in PROGRAMS.items()
                   if not shutil.which(program, path=PATH)})


def needs_word_about_cgroups():
    """Newer versions want control groups unless they are told that there are none;
    Debian 12's does not know that word."""
    version = subprocess.run(["slurmd", "-V"], check=True, text=True, env={"PATH": PATH},
                             stdout=subprocess.PIPE).stdout
    return int(re.search(r" (\d+)\.", version)[1]) >= FIRST_WITH_CGROUPS


def free_ports(count):
    """Ports of 127.0.0.1 that nobody had a moment ago."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


class Cluster:
    """All that it has is in `folder`, an empty one; its daemons are this process's
    children. Needs root.

    `environment` has what srun needs. stop() ends it, also one that never came up.
    """

    def __init__(self, folder):
        self._folder = pathlib.Path(folder)
        self._daemons = []
        self.environment = {"SLURM_CONF": f"{folder}/slurm.conf", "PATH": PATH}

    def start(self):
        self._folder.chmod(0o700)
        for name in ("state", "spool"):
            (self._folder / name).mkdir()
        key = self._folder / "munge.key"
        key.write_bytes(os.urandom(SECRET_BYTES))
        key.chmod(0o400)
        (self._folder / "slurm.conf").write_text(CONFIGURATION.format(
            folder=self._folder, host=socket.gethostname().partition(".")[0],
            ports=free_ports(2), processors=PROCESSORS), encoding="utf-8")
        if needs_word_about_cgroups():
            (self._folder / "cgroup.conf").write_text("CgroupPlugin=disabled\n", encoding="utf-8")
        self._start_daemon(
            "munged", "--foreground", "--force", "--num-threads=1", f"--key-file={key}",
            *(f"--{what}-file={self._folder}/munge.{what}" for what in ("pid", "log", "seed")),
            f"--socket={self._folder}/munge.socket")
        self._wait_for("the munge socket", lambda: (self._folder / "munge.socket").exists())
        self._start_daemon("slurmctld", "-D")
        self._start_daemon("slurmd", "-D")
        self._wait_for("the node", self._node_is_idle)

    def _start_daemon(self, name, *arguments):
        with open(self._folder / f"{name}.output", "wb") as output:
            # Also where this process is killed, no daemon is left.
            self._daemons.append(subprocess.Popen(
                ["setpriv", "--pdeathsig=TERM", name, *arguments], env=self.environment,
                stdin=subprocess.DEVNULL, stdout=output, stderr=output))

    def _node_is_idle(self):
        state = subprocess.run(["sinfo", "--noheader", "--format=%t"], check=False, text=True,
                               env=self.environment, timeout=job.PATIENCE_S,
                               stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        return state.stdout.strip() == "idle"

    def _wait_for(self, what, is_there):
        deadline = time.monotonic() + job.PATIENCE_S
        while not is_there():
            ended = any(daemon.poll() is not None for daemon in self._daemons)
            if ended or time.monotonic() > deadline:
                raise RuntimeError(f"Slurm does not come up: no {what}\n{self.log()}")
            time.sleep(0.02)

    def log(self):
        """What the daemons have said."""
        return "\n".join(f"{path.name}:\n{path.read_text(errors='replace')}"
                         for path in sorted(self._folder.glob("*.output")))

    def stop(self):
        for daemon in reversed(self._daemons):  # slurmd first: it tells slurmctld
            daemon.terminate()
            try:
                daemon.wait(job.PATIENCE_S)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        self._daemons.clear()
