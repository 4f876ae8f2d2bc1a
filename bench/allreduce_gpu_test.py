"""Runs the real bench/allreduce with --memory, on the fake driver."""

import json
import os
import re
import tempfile
import unittest

from bench.allreduce_program import rows, run


class Results(unittest.TestCase):

    def check_right(self, done, expected_rows):
        self.assertEqual(done.returncode, 0, done.stderr + done.stdout)
        table = rows(done.stdout)
        self.assertEqual(len(table), expected_rows, done.stdout)
        for row in table:
            self.assertIn(row[8], ("0", "N/A"), row)
            self.assertIn(row[12], ("0", "N/A"), row)
        self.assertIn("# Out of bounds values : 0 OK", done.stdout)

    def test_every_type_and_operation_in_both_memories_is_right(self):
        for memory in ("device", "managed"):
            done = run("--ranks", "3", "-b", "10000", "-e", "10000", "-n", "2",
                       "-d", "all", "-o", "all", "--memory", memory)
            self.check_right(done, 50)
            self.assertEqual(done.stderr, "")
            self.assertIn(f" memory: {memory} ", done.stdout.splitlines()[1])

    def test_every_collective_is_right_by_both_ways(self):
        for device in ("", "soft"):
            done = run("--ranks", "3", "-b", "0", "-e", "240K", "-i", "120K",
                       "-n", "2", "--collective", "all", "--memory", "device",
                       environment={"RINGPIPE_DEVICE": device})
            self.check_right(done, 3 * 8)

    def test_other_options_go_with_it(self):
        for options in (["-z", "0"], ["--rotate", "3"],
                        ["--align", "4", "-z", "0"]):
            done = run("--ranks", "2", "-b", "1K", "-e", "1M", "-f", "32", "-n",
                       "3", "-c", "2", "--memory", "device", *options)
            self.check_right(done, 3)

    @unittest.skipIf("ASAN_OPTIONS" in os.environ, "takes minutes")
    def test_tensors_are_right(self):
        done = run("--ranks", "2", "--tensors", "resnet50", "-n", "1", "-w", "0",
                   "--memory", "device")
        self.check_right(done, 1)

    def test_the_hosts_memory_is_the_default_and_loads_no_driver(self):
        for options in ([], ["--memory", "host"], ["--memory", "device"]):
            done = run("--ranks", "2", "-b", "1K", "-e", "1K", "-n", "2", *options,
                       environment={"LD_DEBUG": "files"})
            self.check_right(done, 1)
            loads = re.search("calling init: .*libcuda", done.stderr) is not None
            self.assertEqual(loads, "device" in options, options)
            self.assertEqual(" memory: " in done.stdout.splitlines()[1], loads)

    def test_the_ranks_of_a_host_take_its_gpus_in_turn(self):
        done = run("--ranks", "3", "-b", "1K", "-e", "1K", "-n", "2", "--memory",
                   "device", environment={"RINGPIPE_LOG_LEVEL": "info",
                                          "FAKE_CUDA_DEVICES": "2"})
        self.check_right(done, 1)
        taken = re.findall(r"\brank (\d)\b.*device memory: (cuda:\d)", done.stderr)
        self.assertEqual(sorted(taken), [("0", "cuda:0"), ("1", "cuda:1"),
                                         ("2", "cuda:0")], done.stderr)

    def test_the_report_says_whose_memory_it_was(self):
        done = run("--ranks", "2", "-b", "1K", "-e", "1K", "-n", "2", "--memory",
                   "managed", "-J", "-")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(json.loads(done.stdout)["parameters"]["memory"], "managed")

    def test_copies_to_and_from_the_gpu_are_in_the_timeline(self):
        size = 400_000
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "trace")
            done = run("--ranks", "2", "-b", str(size), "-e", str(size), "-n", "1",
                       "-w", "0", "-c", "0", "--memory", "device", "--trace", path,
                       environment={"RINGPIPE_ALGORITHM": "allreduce:ring"})
            self.assertEqual(done.returncode, 0, done.stderr)
            with open(path) as file:
                events = json.load(file)["traceEvents"]
        tracks = {event["tid"]: event["args"]["name"] for event in events
                  if event["ph"] == "M" and event["name"] == "thread_name"}
        copied = {}
        for event in events:
            if event["ph"] == "X" and "bytes" in event["args"]:
                track = tracks[event["tid"]]
                copied[track] = copied.get(track, 0) + event["args"]["bytes"]
                self.assertGreater(event["dur"], 0, event)
        # Of each of the two ranks and of each of the 4 calls (first and timed, out
        # of place and in place): half is sent, half is reduced, which writes the
        # output too, and half is copied there.
        self.assertEqual(copied["copy in"], 2 * 4 * size // 2, copied)
        self.assertEqual(copied["reduce"], 2 * 4 * size // 2, copied)
        self.assertEqual(copied["copy out"], 2 * 4 * size // 2, copied)


class Failure(unittest.TestCase):

    def check_error(self, done, *parts):
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        for part in parts:
            self.assertIn(part, done.stderr)

    def test_without_a_driver_that_can_be_loaded(self):
        """A machine may have the real one, so that one is found first that is none."""
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "libcuda.so.1"), "w") as file:
                file.write("no library")
            done = run("--ranks", "2", "-b", "1K", "-e", "1K", "--memory", "device",
                       environment={"LD_LIBRARY_PATH": folder})
        self.check_error(done, "--memory device: ", "no driver", folder,
                         "install NVIDIA's driver")

    def test_without_a_gpu(self):
        done = run("--ranks", "2", "-b", "1K", "-e", "1K", "--memory", "managed",
                   environment={"FAKE_CUDA_DEVICES": "0"})
        self.check_error(done, "--memory managed: ", "CUDA_ERROR_NO_DEVICE",
                         "CUDA_VISIBLE_DEVICES")

    def test_an_error_of_the_gpu_has_its_name(self):
        done = run("--ranks", "2", "-b", "1M", "-e", "1M", "--memory", "device",
                   environment={"FAKE_CUDA_FAIL": "cuMemcpyAsync:4:719"})
        # Of each rank's GPU, unless one hears of the other's first.
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("CUDA_ERROR_LAUNCH_FAILED", done.stderr)


if __name__ == "__main__":
    unittest.main()
