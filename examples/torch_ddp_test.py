"""The example trains under torchrun, and goes on from its checkpoint when a rank was
killed."""

import contextlib
import glob
import os
import re
import signal
import sys
import tempfile
import time
import unittest

import torch

from examples import torch_ddp
from tests.launch import job

RANKS = 4
STEPS = 100
EVERY = 20
TOLERANCE = 1e-4
# Four processes that import PyTorch, twice, on a busy machine.
PATIENCE_S = 200
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TMPDIR": "/tmp"}
LINE = re.compile(r"^(\d+) ([\d.e+-]+)$", re.MULTILINE)


def rank_process(rank):
    """The process below this one that is that rank; None if none is."""
    for pid in job.descendants():
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                variables = file.read().split(b"\0")
        except OSError:  # it has ended
            continue
        if f"RANK={rank}".encode() in variables:
            return pid
    return None


def wait_for(what, description):
    """What what() returns, as soon as that is something."""
    deadline = time.monotonic() + PATIENCE_S
    while not (found := what()):
        if time.monotonic() > deadline:
            raise TimeoutError(description)
        time.sleep(0.001)
    return found


class TorchDdpTest(unittest.TestCase):

    def setUp(self):
        # Last in, first out: kill, then close.
        self.processes = []
        self.addCleanup(lambda: [process.close() for process in self.processes])
        self.addCleanup(job.kill_descendants)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def start(self, checkpoint, *options):
        self.processes.append(job.Process(
            ["torchrun", "--nproc_per_node", str(RANKS), "-r", "1", "-t", "1", "--rdzv_backend",
             "c10d", "--rdzv_endpoint", "localhost:0", "--log_dir", f"{self.folder}/log", *options, torch_ddp.__file__,
             "--checkpoint", checkpoint, "--every", str(EVERY), "--steps", str(STEPS)],
            ENVIRONMENT, patience_s=PATIENCE_S))
        return self.processes[-1]

    def output(self, process):
        """What rank 0 printed, by attempt: of torchrun's log, which has whole lines."""
        self.assertEqual(process.finish().returncode, 0, process.stdout + process.stderr)
        outputs = []
        for path in sorted(glob.glob(f"{self.folder}/log/*/attempt_*/0/stdout.log")):
            with open(path, encoding="utf-8") as file:
                outputs.append(file.read())
            os.remove(path)
        return outputs

    def output_of_killed(self):
        """Kills rank 2 after the first checkpoint; the steps from there are few, and short."""
        process = self.start(f"{self.folder}/killed", "--max_restarts", "3")
        pid = wait_for(lambda: rank_process(2), "no process is rank 2")
        wait_for(lambda: os.path.exists(f"{self.folder}/killed"), "no checkpoint")
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        return self.output(process)

    def test_it_trains_and_goes_on_when_a_rank_was_killed(self):
        output, = self.output(self.start(f"{self.folder}/whole"))
        losses = [float(loss) for _, loss in LINE.findall(output)]
        self.assertEqual(len(losses), STEPS)
        self.assertLess(losses[-1], 0.5 * losses[0])

        output = self.output_of_killed()
        for _ in range(4):
            if len(output) == 2:
                break
            # It had come to its end before it was killed.
            os.remove(f"{self.folder}/killed")
            output = self.output_of_killed()
        self.assertEqual(len(output), 2)
        first = int(re.match(r"# goes on at step (\d+)\n", output[1])[1])
        self.assertIn(first, range(EVERY, STEPS, EVERY))
        self.assertEqual([int(step) for step, _ in LINE.findall(output[1])],
                         list(range(first, STEPS)))
        # As if nothing had happened. (DDP arranges buckets anew after its first step, also
        # after the checkpoint, which changes the order of additions, and so rounding.)
        whole, killed = (torch.load(f"{self.folder}/{name}") for name in ("whole", "killed"))
        for name, parameter in whole["model"].items():
            torch.testing.assert_close(killed["model"][name], parameter, rtol=0, atol=TOLERANCE)


if __name__ == "__main__":
    job.adopt_orphans()
    unittest.main()
