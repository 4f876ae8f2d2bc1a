"""Ranks that a real srun starts find each other, with no variable set by hand.

    srun_test.py ALLREDUCE C_PROGRAM INSTALL_TREE

The Slurm is brought up for this test, with one node, and ends with it.
"""

import contextlib
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import unittest

# Before numpy is loaded, here and in the ranks: one thread, one order of additions.
os.environ.update(OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1")

# pylint: disable=wrong-import-position
import numpy  # noqa: E402

from examples import numpy_training  # noqa: E402
from tests.launch import job, slurm  # noqa: E402

ALLREDUCE, C_PROGRAM, INSTALL_TREE = (os.path.abspath(argument) for argument in sys.argv[1:4])
RANKS = 4
SIZES = ["-b", "4K", "-e", "64K", "-f", "4", "-n", "3"]
ENDLESS = ["-b", "1M", "-e", "1M", "-n", "10000000"]
# Without what would make this test part of somebody else's job.
ENVIRONMENT = {
    **{name: value for name, value in os.environ.items()
       if not re.match(r"(RINGPIPE|OMPI|PMI|PMIX|MPI|SLURM)_|(MASTER|LOCAL)_|RANK$|WORLD_SIZE$",
                       name)},
    "PYTHONPATH": os.pathsep.join(sys.path)}


def parameters(checkpoint):
    with numpy.load(checkpoint) as saved:
        return [saved[f"arr_{number}"].tobytes() for number in range(4)]


@unittest.skipIf(os.geteuid() != 0, "only root can bring up a Slurm")
class SrunTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        if missing := slurm.missing():
            if os.environ.get("CI"):
                raise RuntimeError(f"{missing} are not installed; run ./setup")
            raise unittest.SkipTest(f"{missing} are not installed; run ./setup")
        job.adopt_orphans()
        # A short path, for sockets.
        cls.folder = pathlib.Path(cls.enterClassContext(
            tempfile.TemporaryDirectory(prefix="slurm", dir="/tmp")))
        cls.cluster = slurm.Cluster(cls.folder)
        cls.addClassCleanup(cls.check_nothing_is_left)
        cls.addClassCleanup(cls.cluster.stop)
        cls.cluster.start()

    @classmethod
    def check_nothing_is_left(cls):
        left = job.lasting_descendants(promise_s=2)
        job.kill_descendants()
        if left:
            raise AssertionError(f"Slurm has left {left}")

    def setUp(self):
        self.daemons = set(job.descendants())
        self.processes = []
        self.addCleanup(self.end_all)

    def end_all(self):
        """Of what a test has started: srun takes its ranks with it."""
        for process in self.processes:
            process.kill()
        for pid, name in job.descendants().items():
            if pid not in self.daemons and name != "slurmstepd":
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        for process in self.processes:
            process.close()

    def srun(self, *command):
        # Quiet, since a job may have to wait for the end of the one before.
        self.processes.append(job.Process(
            ["srun", "--quiet", f"--ntasks={RANKS}", *command],
            {**ENVIRONMENT, **self.cluster.environment}))
        return self.processes[-1]

    def finish(self, process):
        process.finish()
        self.assertEqual((process.returncode, process.stderr), (0, ""),
                         process.stdout + self.cluster.log())
        return process.stdout

    def check_allreduce(self, output):
        rows = [line.split() for line in output.splitlines() if not line.startswith("#")]
        self.assertEqual([(row[0], row[8], row[12]) for row in rows],
                         [("4096", "0", "0"), ("16384", "0", "0"), ("65536", "0", "0")])
        self.assertIn(f"allreduce, ranks: {RANKS}\n", output)
        return {int(pid) for pid in re.findall(r"#  Rank +\d+ Pid +(\d+) on", output)}

    def test_a_program_in_cxx(self):
        self.assertEqual(len(self.check_allreduce(self.finish(self.srun(ALLREDUCE, *SIZES)))),
                         RANKS)

    def test_two_jobs_at_once_do_not_meet(self):
        jobs = [self.srun(ALLREDUCE, *SIZES) for _ in range(2)]
        ranks = [self.check_allreduce(self.finish(one)) for one in jobs]
        self.assertEqual([len(one) for one in ranks], [RANKS, RANKS])
        self.assertFalse(ranks[0] & ranks[1])

    def test_a_program_in_c(self):
        tree, program = self.folder / "tree", self.folder / "c_program"
        tree.mkdir()
        subprocess.run(["tar", "-C", tree, "-xf", INSTALL_TREE], check=True, timeout=60)
        subprocess.run(["gcc", C_PROGRAM, "-o", program, f"-I{tree}/include", f"-L{tree}/lib",
                        f"-Wl,-rpath,{tree}/lib", "-lringpipe"], check=True, timeout=60)
        # The product of a 2 from each.
        self.assertEqual(self.finish(self.srun(program)), f"ok {2 ** RANKS}\n" * RANKS)

    def test_training_in_python(self):
        by_srun, by_spawn = self.folder / "srun.npz", self.folder / "spawn.npz"
        self.finish(self.srun(sys.executable, numpy_training.__file__, "--checkpoint",
                              str(by_srun)))
        alone = job.Process([sys.executable, numpy_training.__file__, "--ranks", str(RANKS),
                             "--checkpoint", str(by_spawn)], ENVIRONMENT)
        self.processes.append(alone)
        self.finish(alone)
        self.assertEqual(parameters(by_srun), parameters(by_spawn))

    def test_a_rank_that_is_killed_is_named_and_ends_the_job(self):
        endless = self.srun(ALLREDUCE, *ENDLESS)
        endless.wait_for(r"\(elements\)")
        victim = re.search(r"#  Rank +2 Pid +(\d+) on", endless.stdout)[1]
        os.kill(int(victim), signal.SIGKILL)
        endless.finish()
        self.assertNotEqual(endless.returncode, 0)
        self.assertRegex(endless.stderr, r"peer lost: .*rank 2")


if __name__ == "__main__":
    del sys.argv[1:]
    unittest.main()
