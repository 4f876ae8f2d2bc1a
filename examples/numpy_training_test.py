"""The example trains 4 ranks as it would train one, whatever starts them, and goes on
without a rank that is killed."""

import argparse
import contextlib
import io
import os
import re
import shutil
import signal
import socket
import sys
import tempfile
import time
import unittest

# Before numpy is loaded, here and in the ranks: one thread, one order of additions.
os.environ.update(OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1")

# pylint: disable=wrong-import-position
import numpy  # noqa: E402

import ringpipe  # noqa: E402
from examples import loss_curve, numpy_training  # noqa: E402
from tests.launch import job  # noqa: E402

RANKS = 4
STEPS = 200
RELATIVE = 1e-9
# So that a rank is killed in the middle of it.
LONG_STEPS = 1500
EVERY = 50
# Open MPI refuses root without two of these; it wants a HOME, and a short TMPDIR for its
# sockets.
ENVIRONMENT = {
    "HOME": "/tmp",
    **{name: value for name, value in os.environ.items()
       if not re.match(r"(RINGPIPE|OMPI|PMI|PMIX|MPI|SLURM)_|(MASTER|LOCAL)_|RANK$|WORLD_SIZE$",
                       name)},
    "PYTHONPATH": os.pathsep.join(sys.path), "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "TMPDIR": "/tmp"}


def setUpModule():
    job.adopt_orphans()


def options():
    return argparse.Namespace(steps=STEPS, checkpoint=None, every=EVERY)


def trained(given):
    """What a rank of the example returns; what it prints is not shown."""
    with contextlib.redirect_stdout(io.StringIO()):
        return numpy_training.run(given)


def by_one_process(steps):
    """The parameters after so many steps on whole batches, without ringpipe."""
    network = numpy_training.Network()
    optimizer = numpy_training.Descent()
    optimizer.setup(network)
    for step in range(steps):
        x = numpy.random.default_rng(step).uniform(-2, 2, (240, 2))
        network.loss(x, numpy.sin(2 * x[:, :1]) * x[:, 1:])
        optimizer.update()
    return [layer.data for layer in network.layers]


def read(checkpoint):
    with numpy.load(checkpoint) as saved:
        return [saved[f"arr_{number}"] for number in range(4)], int(saved["step"])


def steps_and_losses(output):
    return [(int(step), float(loss)) for step, loss in (line.split() for line in
                                                         output.splitlines())]


class TrainingTest(unittest.TestCase):

    def setUp(self):
        # Last in, first out: kill, then close.
        self.processes = []
        self.addCleanup(lambda: [process.close() for process in self.processes])
        self.addCleanup(job.kill_descendants)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.checkpoint = f"{folder.name}/checkpoint.npz"

    def start(self, *arguments, launcher=(), **variables):
        self.processes.append(job.Process(
            [*launcher, sys.executable, numpy_training.__file__, *arguments],
            {**ENVIRONMENT, **variables}))
        return self.processes[-1]

    def expect_near(self, found, expected):
        for one, other in zip(found, expected, strict=True):
            numpy.testing.assert_allclose(one, other, rtol=RELATIVE, atol=0)

    def expect_same_bits(self, found, expected):
        self.assertEqual([one.tobytes() for one in found], [one.tobytes() for one in expected])

    def test_four_ranks_compute_what_one_process_computes(self):
        of_ranks = ringpipe.spawn(trained, RANKS, (options(),))
        for found in of_ranks:
            self.expect_near(found, by_one_process(STEPS))
            self.expect_same_bits(found, of_ranks[0])

    def test_a_start_from_a_checkpoint_ends_with_the_same_bits(self):
        whole = ringpipe.spawn(trained, RANKS, (options(),))[0]
        for first, last in ((0, STEPS // 2), (STEPS // 2, STEPS)):
            process = self.start("--ranks", str(RANKS), "--checkpoint", self.checkpoint,
                                 "--steps", str(last)).finish()
            self.assertEqual([step for step, _ in steps_and_losses(process.stdout)],
                             list(range(first, last)), process.stderr)
        found, step = read(self.checkpoint)
        self.assertEqual(step, STEPS)
        self.expect_same_bits(found, whole)

    def check_launched(self, process):
        process.finish()
        self.assertEqual((process.returncode, process.stderr), (0, ""))
        losses = steps_and_losses(process.stdout)
        self.assertEqual([step for step, _ in losses], list(range(STEPS)))
        self.assertLess(losses[-1][1], 0.5 * losses[0][1])
        found, step = read(self.checkpoint)
        self.assertEqual(step, STEPS)
        self.expect_near(found, by_one_process(STEPS))

    def check_mpirun(self, *launcher):
        if not shutil.which(launcher[0]):
            self.skipTest(f"{launcher[0]} is not installed")
        self.check_launched(self.start("--checkpoint", self.checkpoint,
                                       launcher=(*launcher, "-n", str(RANKS))))

    def test_started_by_open_mpi(self):
        self.check_mpirun("mpirun.openmpi", "--oversubscribe")

    def test_started_by_mpich(self):
        self.check_mpirun("mpirun.mpich")

    def test_started_as_srun_does(self):
        ranks = [self.start("--checkpoint", self.checkpoint, SLURM_PROCID=str(rank),
                            SLURM_LOCALID=str(rank), SLURM_NTASKS=str(RANKS), SLURM_NNODES="1",
                            SLURM_JOB_ID=str(os.getpid()), SLURM_STEP_ID="0",
                            SLURM_STEP_NODELIST=socket.gethostname())
                 for rank in range(RANKS)]
        self.check_launched(ranks[0])
        for process in ranks[1:]:
            process.finish()
            self.assertEqual((process.returncode, process.stdout, process.stderr), (0, "", ""))

    def test_started_by_itself(self):
        self.check_launched(self.start("--ranks", str(RANKS), "--checkpoint", self.checkpoint))

    def check_killed(self, *victims):
        """Nothing but the ranks themselves learns that some were killed."""
        ranks = [self.start("--checkpoint", self.checkpoint, "--steps", str(LONG_STEPS),
                            "--every", str(EVERY), RINGPIPE_RANK=str(rank),
                            RINGPIPE_SIZE=str(RANKS),
                            RINGPIPE_ROOT=f"unix:@{self.id()}-{os.getpid()}")
                 for rank in range(RANKS)]
        # So that rank 0 stops a few hundred lines behind what was read here.
        ranks[0].bound_unread_output()
        ranks[0].wait_for(rf"(?m)^{3 * EVERY // 2} ")
        for victim in victims:
            os.kill(ranks[victim].pid, signal.SIGKILL)
        killed_s = time.monotonic()
        survivors = [process for rank, process in enumerate(ranks) if rank not in victims]
        for process in survivors:
            lost = process.wait_for(r"# rank \d of 4 has lost \((.*)\)", "stderr")[1]
            self.assertIn(lost, [f"{victim}," for victim in victims])
        self.assertLess(time.monotonic() - killed_s, job.liveness_bound_s(2))
        for process in survivors:
            process.finish()
            self.assertEqual(process.returncode, 0, process.stderr)
            self.assertEqual(process.stderr.count("has lost"), 1, process.stderr)
        found, step = read(self.checkpoint)
        self.assertEqual(step, LONG_STEPS)
        self.expect_near(found, by_one_process(LONG_STEPS))
        # From a checkpoint, and not from the beginning.
        steps = [step for step, _ in steps_and_losses("".join(process.stdout for process in ranks))]
        again = next(number for number, (one, other) in enumerate(zip(steps, steps[1:]))
                     if other != one + 1) + 1
        self.assertEqual(steps[:again], list(range(again)))
        self.assertEqual(steps[again:], list(range(steps[again], LONG_STEPS)))
        self.assertGreater(steps[again], 0)
        self.assertEqual(steps[again] % EVERY, 0)

    def test_the_others_go_on_when_a_rank_is_killed(self):
        self.check_killed(2)

    def test_the_others_go_on_when_rank_0_is_killed(self):
        self.check_killed(0)

    def test_the_others_go_on_when_two_are_killed_at_once(self):
        self.check_killed(0, 3)


class LossCurveTest(unittest.TestCase):

    def test_a_line_for_each_start(self):
        picture = loss_curve.draw(loss_curve.read(
            ["0 1.0\n", "[default0]:1 0.5\n", "# rank 1 of 4 ...\n", "1 0.5\n", "2 0.25\n"]))
        self.assertEqual(picture.count("<polyline"), 2)
        self.assertIn("Loss of numpy_training.py by step", picture)
        # Steps from 56 to 784 across; from the largest loss at 44 down to the least at 272.
        self.assertIn('points="56.0,44.0 420.0,158.0"', picture)
        self.assertIn('points="420.0,158.0 784.0,272.0"', picture)

    def test_what_is_no_output_of_the_example_is_refused(self):
        for lines in (["hello\n"], ["1\n"], ["1 nan\n"], []):
            with self.assertRaisesRegex(SystemExit, "pass the output of an example"):
                loss_curve.read(lines)


if __name__ == "__main__":
    unittest.main()
