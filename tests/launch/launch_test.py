"""bench/allreduce under the launchers that users have, with none of its flags.

Open MPI and MPICH are the real ones. Slurm and torchrun are played: their
variables are set as they set them (srun_test.py has a real Slurm). Alone:
launch_test.py PROGRAM README.
"""

import contextlib
import os
import re
import shutil
import signal
import socket
import sys
import tempfile
import time
import unittest

import job

PROGRAM = os.path.abspath(sys.argv.pop(1))
README = os.path.abspath(sys.argv.pop(1))
HOST = socket.gethostname()
RANKS = 4
SIZES = ["-b", "4K", "-e", "64K", "-f", "4", "-n", "3"]
AGENT = """
import socket, sys, threading
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print("listening", flush=True)
threading.Event().wait()
"""
# For the ranks that are there to start and join, also on a busy machine, before
# the one that is not there is given up.
JOIN_MS = "10000"
# Runs until somebody ends it.
ENDLESS = ["-b", "1M", "-e", "1M", "-n", "10000000"]

# Without the variables that would make this test part of somebody else's job.
ENVIRONMENT = {
    name: value
    for name, value in os.environ.items()
    if not re.match(r"(RINGPIPE|OMPI|PMI|PMIX|MPI|SLURM|TORCHELASTIC)_"
                    r"|(MASTER|LOCAL)_|RANK$|WORLD_SIZE$"
                    r"|BUILD_WORKING_DIRECTORY$", name)
}
# Open MPI refuses root without these two; its sockets' paths must be short, and
# the directory that Bazel gives to tests is deep.
ENVIRONMENT.update(OMPI_ALLOW_RUN_AS_ROOT="1",
                   OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", TMPDIR="/tmp")
ENVIRONMENT.setdefault("HOME", "/tmp")


def setUpModule():
    job.adopt_orphans()


def free_ports(count):
    """Ports of 127.0.0.1 that were free, each with the one after it."""
    ports = []
    with contextlib.ExitStack() as taken:
        while len(ports) < count:
            first = taken.enter_context(socket.socket())
            second = taken.enter_context(socket.socket())
            first.bind(("127.0.0.1", 0))
            port = first.getsockname()[1]
            with contextlib.suppress(OSError, OverflowError):
                second.bind(("127.0.0.1", port + 1))
                ports.append(port)
    return ports


def pids(text):
    """Of the ranks, from the head of rank 0's output."""
    return [int(pid) for pid in re.findall(r"#  Rank +\d+ Pid +(\d+) on", text)]


def messages(text):
    """What the program itself says on stderr."""
    return re.findall(r"^allreduce: (.*)", text, re.M)


class LaunchTest(unittest.TestCase):

    def setUp(self):
        # Last in, first out: kill, then close.
        self.processes = []
        self.addCleanup(self.close_all)
        self.addCleanup(job.kill_descendants)

    def close_all(self):
        for process in self.processes:
            process.close()

    def start(self, command, **variables):
        self.processes.append(
            job.Process(command, {**ENVIRONMENT, **variables}))
        return self.processes[-1]

    def check_right(self, processes):
        """All ended well; returns the ranks' pids, which rank 0 printed."""
        for process in processes:
            process.finish()
        errors = "".join(process.stderr for process in processes)
        output = "".join(process.stdout for process in processes)
        self.assertEqual([process.returncode for process in processes],
                         [0] * len(processes), output + errors)
        self.assertEqual(errors, "")
        self.assertIn(f"allreduce, ranks: {RANKS}\n", output)
        rows = [line.split() for line in output.splitlines()
                if not line.startswith("#")]
        self.assertEqual([row[0] for row in rows], ["4096", "16384", "65536"])
        for row in rows:
            self.assertEqual((row[8], row[12]), ("0", "0"), row)
        self.assertEqual(output.count("# Out of bounds values : 0 OK"), 1)
        ranks = pids(output)
        self.assertEqual(len(set(ranks)), RANKS, output)
        return ranks

    def check_nothing_left(self):
        # What a launcher kills at its own end has still to end itself.
        self.assertEqual(job.lasting_descendants(promise_s=2), {})


class MpirunTest:
    """What holds for every mpirun. Mixed into the classes below."""

    mpirun = ()

    def setUp(self):
        self.assertTrue(shutil.which(self.mpirun[0]),
                        f"{self.mpirun[0]} is not installed; run ./setup")
        super().setUp()

    def launch(self, *arguments, **variables):
        return self.start(
            [*self.mpirun, "-n", str(RANKS), PROGRAM, *arguments], **variables)

    def run_to_its_end(self, *arguments, **variables):
        # MPICH's mpirun dies of SIGPIPE now and then where ranks end at once,
        # as "mpirun -n 4 false" shows on a busy machine; no output then.
        for _ in range(5):
            launcher = self.launch(*arguments, **variables).finish()
            if launcher.returncode != -signal.SIGPIPE:
                break
        return launcher

    def test_ranks_find_each_other(self):
        self.check_right([self.launch(*SIZES)])
        self.check_nothing_left()

    def test_two_jobs_at_once_do_not_meet(self):
        jobs = [self.launch(*SIZES) for _ in range(2)]
        ranks = [self.check_right([one]) for one in jobs]
        self.assertFalse(set(ranks[0]) & set(ranks[1]))

    def test_a_job_that_starts_during_another_does_not_meet_it(self):
        endless = self.launch(*ENDLESS)
        endless.wait_for(r"\(elements\)")
        self.check_right([self.launch(*SIZES)])
        self.assertIsNone(endless.returncode)

    def test_a_missing_rank_is_named_when_the_time_to_join_is_over(self):
        started = time.monotonic()
        # Not by a second program after ":", of which Open MPI 5.0.7 dies.
        launcher = self.start(
            [*self.mpirun, "-n", str(RANKS), "sh", "-c",
             'test "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" = 3 || exec "$0" "$@"',
             PROGRAM, *SIZES], RINGPIPE_JOIN_TIMEOUT_MS=JOIN_MS).finish()
        # Liveness: not the 30 s that it would take by default.
        self.assertLess(time.monotonic() - started, 25)
        self.assertEqual(launcher.returncode, 1)
        said = set(messages(launcher.stderr + launcher.stdout))
        self.assertEqual(len(said), 1, said)
        self.assertRegex(said.pop(), r"timeout: rank\(s\) 3 of 4 did not join")
        self.check_nothing_left()

    def test_bad_input_is_one_message_and_exit_status_1(self):
        for arguments, variables, expected in (
            (["-d", "float99"], {}, r'"float99" is no data type; allowed are'),
            (["-b", "12Q"], {}, r"-b \(--minbytes\).*12Q"),
            (SIZES, {"RINGPIPE_DEPTH": "0"}, r"RINGPIPE_DEPTH"),
            (SIZES, {"RINGPIPE_DEVICE": "no0", "RINGPIPE_HOST_MEMORY": "never"},
             r"RINGPIPE_DEVICE=no0: there "),
            (SIZES, {"RINGPIPE_SIZE": "4"}, r"RINGPIPE_RANK is not: set both"),
        ):
            launcher = self.run_to_its_end(*arguments, **variables)
            self.assertEqual(launcher.returncode, 1, launcher.stderr)
            # Ranks that find it out by themselves say the same; one that is
            # told first says by whom.
            said = {re.sub(r"\brank \d: ", "", message, count=1)
                    for message in messages(launcher.stderr + launcher.stdout)}
            self.assertEqual(len(said), 1, launcher.stderr)
            self.assertRegex(said.pop(), expected)
        self.check_nothing_left()

    def test_a_killed_rank_ends_the_job_and_nothing_is_left(self):
        launcher = self.launch(*ENDLESS)
        launcher.wait_for(r"\(elements\)")
        ranks = pids(launcher.stdout)
        self.assertLessEqual(set(ranks), set(job.descendants()))
        os.kill(ranks[2], signal.SIGKILL)
        launcher.finish()
        self.assertNotEqual(launcher.returncode, 0)
        self.check_nothing_left()


class OpenMpi(MpirunTest, LaunchTest):
    mpirun = ("mpirun.openmpi", "--oversubscribe")


class Mpich(MpirunTest, LaunchTest):
    mpirun = ("mpirun.mpich",)


class VariablesTest:
    """What holds for launchers that set variables alone."""

    def variables(self, rank, which):
        """What the launcher sets for `rank` of one of two jobs: 0 or 1."""
        raise NotImplementedError

    def start_rank(self, rank, which, *arguments, **variables):
        return self.start([PROGRAM, *arguments],
                          **{**self.variables(rank, which), **variables})

    def launch(self, which, *arguments, ranks=range(RANKS), **variables):
        return [self.start_rank(rank, which, *arguments, **variables)
                for rank in ranks]

    def test_ranks_find_each_other(self):
        processes = self.launch(0, *SIZES)
        ranks = self.check_right(processes)
        self.assertEqual(ranks, [process.pid for process in processes])
        self.check_nothing_left()

    def test_two_jobs_at_once_do_not_meet(self):
        jobs = [[], []]
        for rank in range(RANKS):
            for which in range(2):
                jobs[which].append(self.start_rank(rank, which, *SIZES))
        for processes in jobs:
            ranks = self.check_right(processes)
            self.assertEqual(ranks, [process.pid for process in processes])

    def test_a_missing_rank_is_named_when_the_time_to_join_is_over(self):
        started = time.monotonic()
        for process in self.launch(0, *SIZES, ranks=(0, 1, 3),
                                   RINGPIPE_JOIN_TIMEOUT_MS=JOIN_MS):
            process.finish()
            self.assertEqual(process.returncode, 1)
            said = messages(process.stderr)
            self.assertEqual(len(said), 1, said)
            self.assertRegex(said[0], r"timeout: rank\(s\) 2 of 4 did not join")
        self.assertLess(time.monotonic() - started, 25)

    def test_a_missing_rank_0_is_named_by_all_others(self):
        for process in self.launch(0, *SIZES, ranks=(1, 2, 3),
                                   RINGPIPE_JOIN_TIMEOUT_MS="1000"):
            process.finish()
            self.assertEqual(process.returncode, 1)
            said = messages(process.stderr)
            self.assertEqual(len(said), 1, said)
            self.assertRegex(said[0], r"timeout: .*rank 0")

    def test_a_killed_rank_ends_the_others(self):
        processes = self.launch(0, *ENDLESS)
        processes[0].wait_for(r"\(elements\)")
        os.kill(processes[2].pid, signal.SIGKILL)
        for rank, process in enumerate(processes):
            process.finish()
            self.assertEqual(process.returncode,
                             -signal.SIGKILL if rank == 2 else 1)
        # Rank 0 says what all know.
        self.assertRegex(processes[0].stderr, r"peer lost: .*rank 2")
        self.check_nothing_left()

    def test_a_killed_rank_0_is_named_by_the_others(self):
        processes = self.launch(0, *ENDLESS)
        processes[0].wait_for(r"\(elements\)")
        os.kill(processes[0].pid, signal.SIGKILL)
        for process in processes:
            process.finish()
        for process in processes[1:]:
            self.assertEqual(process.returncode, 1)
        # Not all: they say the same.
        self.assertRegex(processes[1].stderr, r"peer lost: .*rank 0")
        self.check_nothing_left()

    def check_bad(self, expected, remove=(), **variables):
        """One rank of the job with variables that contradict each other."""
        environment = {**self.variables(1, 0), **variables}
        for name in remove:
            del environment[name]
        process = self.start([PROGRAM, *SIZES], **environment).finish()
        self.assertEqual(process.returncode, 1, process.stderr)
        self.assertEqual(process.stdout, "")
        said = messages(process.stderr)
        self.assertEqual(len(said), 1, process.stderr)
        self.assertRegex(said[0], expected)


class Slurm(VariablesTest, LaunchTest):

    def variables(self, rank, which):
        # The process's id: a Slurm job of its own for each run of this test.
        return {
            "SLURM_PROCID": str(rank),
            "SLURM_LOCALID": str(rank),
            "SLURM_NTASKS": str(RANKS),
            "SLURM_NNODES": "1",
            "SLURM_JOB_ID": str(os.getpid()),
            "SLURM_STEP_ID": str(which),
            "SLURM_JOB_NODELIST": HOST,
            "SLURM_STEP_NODELIST": HOST,
        }

    def test_bad_variables_are_one_message_and_exit_status_1(self):
        self.check_bad("SLURM_NTASKS", remove=["SLURM_NTASKS"])
        self.check_bad("SLURM_PROCID=4", SLURM_PROCID="4")
        self.check_bad("srun", remove=["SLURM_STEP_ID"])


class Torchrun(VariablesTest, LaunchTest):
    """All ranks on one host, and MASTER_PORT the agent's."""

    local_world_size = RANKS

    def setUp(self):
        super().setUp()
        self.ports = free_ports(2)
        # Other processes hold them: they stand for torchrun's agents.
        for port in self.ports:
            agent = self.start([sys.executable, "-c", AGENT, str(port)])
            agent.wait_for("listening")
        self.agents = self.processes[:]

    def check_nothing_left(self):
        for agent in self.agents:
            os.kill(agent.pid, signal.SIGKILL)
            agent.finish()
        super().check_nothing_left()

    def variables(self, rank, which):
        return {
            "RANK": str(rank),
            "LOCAL_RANK": str(rank % self.local_world_size),
            "WORLD_SIZE": str(RANKS),
            "LOCAL_WORLD_SIZE": str(self.local_world_size),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(self.ports[which]),
            "TORCHELASTIC_RUN_ID": "none",
            "TORCHELASTIC_RESTART_COUNT": "0",
        }

    def test_bad_variables_are_one_message_and_exit_status_1(self):
        self.check_bad("WORLD_SIZE=four", WORLD_SIZE="four")
        self.check_bad("WORLD_SIZE", remove=["WORLD_SIZE"])
        self.check_bad("MASTER_ADDR", remove=["MASTER_ADDR"])


class TorchrunByPort(Torchrun):
    """As if on several hosts: the port after MASTER_PORT."""

    local_world_size = 2

    def variables(self, rank, which):
        return {**super().variables(rank, which),
                "RINGPIPE_SECRET": "of this test"}


class PlainVariables(VariablesTest, LaunchTest):
    """RINGPIPE_RANK, RINGPIPE_SIZE and RINGPIPE_ROOT, a unix socket."""

    def variables(self, rank, which):
        return {
            "RINGPIPE_RANK": str(rank),
            "RINGPIPE_SIZE": str(RANKS),
            "RINGPIPE_ROOT": f"unix:@{self.id()}-{os.getpid()}-{which}",
        }

    def test_bad_variables_are_one_message_and_exit_status_1(self):
        self.check_bad("RINGPIPE_ROOT", remove=["RINGPIPE_ROOT"])
        self.check_bad("RINGPIPE_RANK=4", RINGPIPE_RANK="4")
        self.check_bad("RINGPIPE_ROOT", RINGPIPE_ROOT="127.0.0.1")
        self.check_bad("RINGPIPE_RNAK", RINGPIPE_RNAK="1")
        self.check_bad("RINGPIPE_SECRET.*unix:@NAME",
                       RINGPIPE_SECRET="",
                       RINGPIPE_ROOT="127.0.0.1:29600")


class PlainVariablesWithSecret(PlainVariables):
    """The same over TCP."""

    def setUp(self):
        super().setUp()
        self.ports = free_ports(2)

    def variables(self, rank, which):
        return {
            **super().variables(rank, which),
            "RINGPIPE_ROOT": f"127.0.0.1:{self.ports[which]}",
            "RINGPIPE_SECRET": "of this test",
        }

    def test_an_address_in_use_is_one_message_and_exit_status_1(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            self.check_bad(f"127.0.0.1:{port}.*in use",
                           RINGPIPE_ROOT=f"127.0.0.1:{port}", RINGPIPE_RANK="0")

    def test_a_rank_with_another_secret_is_refused_and_named_as_missing(self):
        job_of_three = self.launch(0, *SIZES, ranks=(0, 1, 3),
                                   RINGPIPE_JOIN_TIMEOUT_MS=JOIN_MS)
        stranger = self.start_rank(2, 0, *SIZES, RINGPIPE_SECRET="another",
                                   RINGPIPE_JOIN_TIMEOUT_MS=JOIN_MS)
        for process in [*job_of_three, stranger]:
            process.finish()
            self.assertEqual(process.returncode, 1)
        self.assertRegex(job_of_three[0].stderr,
                         r"rank\(s\) 2 of 4 did not join.*refused")


# Launchers that take the options that the real ones take, and set the variables
# that they set. torchrun's are those of Debian 12's, PyTorch 1.13: with
# underscores, where later ones also take hyphens; and with Debian's Python 3.11
# it fails unless -r and -t are 1 or 2.
PLAYED = {
    "torchrun": ("--nproc_per_node", """
parser.add_argument("--no_python", action="store_true", required=True)
parser.add_argument("-r", choices=["1", "2"], required=True)
parser.add_argument("-t", choices=["1", "2"], required=True)
variables = {"RANK": "{rank}", "LOCAL_RANK": "{rank}", "WORLD_SIZE": "{size}",
             "LOCAL_WORLD_SIZE": "{size}", "MASTER_ADDR": "127.0.0.1",
             "MASTER_PORT": "29500", "TORCHELASTIC_RUN_ID": "none"}
"""),
    "srun": ("-n", """
variables = {"SLURM_PROCID": "{rank}", "SLURM_LOCALID": "{rank}",
             "SLURM_NTASKS": "{size}", "SLURM_NNODES": "1",
             "SLURM_JOB_ID": "{job}", "SLURM_STEP_ID": "0",
             "SLURM_STEP_NODELIST": "{host}"}
"""),
}
PLAY = """#!{python}
import argparse, os, socket, subprocess, sys
parser = argparse.ArgumentParser()
parser.add_argument("{size_option}", dest="size", type=int, required=True)
parser.add_argument("command", nargs=argparse.REMAINDER)
{own}
args = parser.parse_args()
processes = []
for rank in range(args.size):
    environment = dict(os.environ)
    for name, value in variables.items():
        environment[name] = value.format(
            rank=rank, size=args.size, job=os.getpid(),
            host=socket.gethostname())
    processes.append(subprocess.Popen(args.command, env=environment))
sys.exit(max(process.wait() for process in processes))
"""


class Readme(LaunchTest):
    """The commands of README.md for each launcher, as they stand there."""

    def setUp(self):
        super().setUp()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        os.makedirs(f"{self.folder}/bazel-bin/bench")
        os.symlink(PROGRAM, f"{self.folder}/bazel-bin/bench/allreduce")
        with open(README, encoding="utf-8") as file:
            section = re.search(r"^## Start it in another way\n(.*?)^## ",
                                file.read(), re.M | re.S)[1]
        lines = "\n".join(re.findall(r"^    (.*)", section, re.M))
        # Each launcher's commands follow a comment that begins with its name.
        self.commands = dict(
            re.findall(r"^# ([\w ]+?)(?: \(.*|:.*)?\n((?:[^#].*\n?)+)", lines,
                       re.M))

    def check(self, launcher, path=ENVIRONMENT["PATH"]):
        process = self.start(
            ["env", "-C", self.folder, "bash", "-euo", "pipefail", "-c",
             self.commands[launcher]], PATH=path).finish()
        output = process.stdout + process.stderr
        self.assertEqual(process.returncode, 0, output)
        for expected in (f"allreduce, ranks: {RANKS}\n",
                         "# Out of bounds values : 0 OK"):
            self.assertEqual(output.count(expected), 1, output)
        self.check_nothing_left()

    def check_if_installed(self, launcher, program):
        if not shutil.which(program):
            self.skipTest(f"{program} is not installed")
        self.check(launcher)

    def check_played(self, launcher, program):
        size_option, own = PLAYED[program]
        os.mkdir(f"{self.folder}/played")
        path = f"{self.folder}/played/{program}"
        with open(path, "w", encoding="utf-8") as file:
            file.write(PLAY.replace("{python}", sys.executable)
                       .replace("{size_option}", size_option)
                       .replace("{own}", own))
        os.chmod(path, 0o755)
        self.check(launcher, f"{self.folder}/played:{ENVIRONMENT['PATH']}")

    def test_every_launcher_is_tested(self):
        self.assertEqual(list(self.commands), [
            "Open MPI", "MPICH", "Slurm", "torchrun", "no launcher"])

    def test_open_mpi(self):
        self.check_if_installed("Open MPI", "mpirun.openmpi")

    def test_mpich(self):
        self.check_if_installed("MPICH", "mpirun.mpich")

    def test_slurm_played(self):
        self.check_played("Slurm", "srun")

    def test_torchrun(self):
        # Debian 13's asks its PyTorch for libuv, which that lacks, and starts nothing.
        if shutil.which("torchrun"):
            tried = self.start(["torchrun", "--no_python", "--nproc_per_node", "1",
                                "-r", "1", "-t", "1", "true"]).finish()
            if "without libuv support" in tried.stderr:
                self.assertNotEqual(tried.returncode, 0, tried.stderr)
                self.skipTest("this torchrun starts no program: PyTorch lacks libuv")
        self.check_if_installed("torchrun", "torchrun")

    def test_torchrun_played(self):
        self.check_played("torchrun", "torchrun")

    def test_no_launcher(self):
        self.check("no launcher")


if __name__ == "__main__":
    unittest.main()
