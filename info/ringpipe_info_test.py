"""What ringpipe-info prints of GPUs, on the fake driver and without one; and of wrong
arguments."""

import json
import os
import subprocess
import sys
import unittest

PROGRAM = os.path.abspath(sys.argv.pop(1))
FAKE_DRIVER = os.path.abspath("cuda/fake_driver")
PATIENCE_S = 100


def run(*arguments, driver=FAKE_DRIVER, **variables):
    environment = {name: value for name, value in os.environ.items()
                   if not name.startswith(("RINGPIPE_", "NCCL_", "LD_LIBRARY_PATH"))}
    if driver:
        environment["LD_LIBRARY_PATH"] = driver
    return subprocess.run([PROGRAM, *arguments], env={**environment, **variables},
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          timeout=PATIENCE_S, check=False)


class RingpipeInfoTest(unittest.TestCase):

    def printed(self, *arguments, **variables):
        done = run(*arguments, **variables)
        self.assertEqual(done.stderr, "")
        return done.returncode, done.stdout

    def test_gpus_and_paths_are_printed(self):
        _, text = self.printed()
        for line in (
                "GPU driver    CUDA 12.0\n",
                "cuda:0        fake GPU 0, PTX interpreted on the host, compute capability 9.0\n",
                "  usable      kernels: PTX 6.0 for compute capability 5.0, which the driver has "
                "compiled for 9.0\n",
                "cuda:1        fake GPU 1",
                "GPU memory    by copies between device memory and pinned slots in host memory\n",
                "              not by GPUDirect RDMA: ",
                "              not by IPC between processes: ",
                "              not by copies between GPUs: ",
                "              not by registered device memory: "):
            self.assertIn(line, text)

    def test_json_has_the_same(self):
        _, text = self.printed("--json", FAKE_CUDA_FAIL="cuDevicePrimaryCtxRetain:2:46")
        gpu = json.loads(text)["gpu"]
        self.assertEqual(gpu["driver_version"], 12000)
        self.assertIsNone(gpu["driver_error"])
        self.assertEqual([one["state"] for one in gpu["devices"]], ["usable", "busy"])
        self.assertEqual(gpu["devices"][1]["error"]["code"], "unavailable")
        self.assertEqual([path["there"] for path in gpu["paths"]],
                         [True, False, False, False, False])

    def test_neither_no_driver_nor_a_broken_one_changes_the_exit_status(self):
        status, text = self.printed()
        self.assertNotIn("no driver", text)
        without = self.printed(driver=None)
        self.assertEqual(without[0], status)
        if "CUDA: no driver" in without[1]:  # else it is this machine's
            self.assertIn("GPU driver    CUDA: no driver: libcuda.so.1: ", without[1])
            self.assertIn("GPU memory    not by copies between device memory and pinned slots in "
                          "host memory: no GPU here can be used\n", without[1])
        broken = self.printed(FAKE_CUDA_FAIL="cuInit:1:-2")
        self.assertEqual(broken[0], status)
        self.assertIn("GPU driver    CUDA 12.0, cannot be used: the driver is broken: it has ended "
                      "the process that asked it by signal 11", broken[1])

    def test_wrong_arguments_are_named_and_no_verdict(self):
        done = run("--jsn")
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertIn("--jsn", done.stderr)
        self.assertEqual(run("--help").returncode, 0)


if __name__ == "__main__":
    unittest.main()
