"""The wheel with ringpipe.torch works in a virtual environment that sees the system's
PyTorch.

    torch_wheel_test WHEEL
"""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

WHEEL = pathlib.Path(sys.argv.pop(1)).resolve() if len(sys.argv) > 1 else None
PROGRAM = """
import torch, torch.distributed as dist, ringpipe.torch
dist.init_process_group("ringpipe", init_method="file://{folder}/store", rank=0, world_size=1)
x = torch.ones(3)
dist.all_reduce(x)
print(ringpipe.__file__, x.sum().item())
"""


class TorchWheelTest(unittest.TestCase):

    def test_it_can_be_installed_and_imported(self):
        # Without the paths of this test's own packages.
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

        def run(*command):
            return subprocess.run(command, env=environment, check=True, text=True, timeout=100,
                                  stdout=subprocess.PIPE, cwd="/").stdout
        with tempfile.TemporaryDirectory(dir="/tmp") as folder:
            run("/usr/bin/python3", "-m", "venv", "--system-site-packages", f"{folder}/venv")
            run(f"{folder}/venv/bin/pip", "install", "--no-index", "--quiet", str(WHEEL))
            printed = run(f"{folder}/venv/bin/python3", "-c", PROGRAM.format(folder=folder))
            self.assertRegex(printed, rf"^{folder}/venv/.* 3\.0\n$")


if __name__ == "__main__":
    unittest.main()
