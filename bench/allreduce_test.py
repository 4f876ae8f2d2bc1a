"""Runs the real bench/allreduce, as users do."""

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
import unittest

PROGRAM = os.path.abspath(sys.argv.pop(1))
PATIENCE_S = 50

# Variables that would make this test part of somebody else's job.
ENVIRONMENT = {
    name: value
    for name, value in os.environ.items()
    if not re.match(r"(RINGPIPE|OMPI|PMI|PMIX|SLURM)_|(MASTER|LOCAL)_|RANK$|"
                    r"WORLD_SIZE$|BUILD_WORKING_DIRECTORY$", name)
}


def run(*arguments, environment=None, **options):
    return subprocess.run(
        [PROGRAM, *arguments],
        env={**ENVIRONMENT, **(environment or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        timeout=PATIENCE_S,
        check=False,
        **options)


def rows(text):
    """The lines of the table, as lists of words."""
    return [line.split() for line in text.splitlines()
            if line and not line.startswith("#")]


class Results(unittest.TestCase):

    def check_right(self, done, expected_rows):
        self.assertEqual(done.returncode, 0, done.stderr + done.stdout)
        self.assertEqual(done.stderr, "")
        table = rows(done.stdout)
        self.assertEqual(len(table), expected_rows, done.stdout)
        for row in table:
            self.assertEqual(len(row), 13, row)
            self.assertEqual((row[8], row[12]), ("0", "0"), row)
        self.assertIn("# Out of bounds values : 0 OK", done.stdout)
        self.assertRegex(done.stdout, r"# Avg bus bandwidth    : [0-9.e+-]+\n")
        self.assertRegex(done.stdout, r"# Bound by             : \S")
        return table

    def test_sizes_from_nothing_up_are_right(self):
        done = run("--ranks", "3", "-b", "0", "-e", "40", "-i", "4", "-n", "3")
        self.check_right(done, 11)
        self.assertEqual(done.stdout.count("first call"), 22)

    def test_every_type_and_operation_is_right(self):
        done = run("--ranks", "3", "-b", "100000", "-e", "100000", "-n", "2",
                   "-d", "all", "-o", "all")
        table = self.check_right(done, 30)
        self.assertEqual(len({(row[2], row[3]) for row in table}), 30)

    def test_asynchronous_calls_and_registered_buffers_are_right(self):
        for options in (["-z", "0"], ["-R", "1"], ["-R", "2"], ["-z", "0", "-R", "2"]):
            done = run("--ranks", "3", "-b", "1K", "-e", "1M", "-f", "32", "-n",
                       "2", "-c", "2", *options)
            self.check_right(done, 3)

    def test_one_rank_is_enough(self):
        self.check_right(run("--ranks", "1", "-e", "1K", "-n", "2"), 1)

    def test_json_holds_every_sample(self):
        with tempfile.TemporaryDirectory() as directory:
            done = run("--ranks", "3", "-b", "1K", "-e", "2K", "-f", "2", "-n",
                       "7", "-J", "out.json",
                       environment={"BUILD_WORKING_DIRECTORY": directory})
            self.check_right(done, 2)
            self.assertEqual(os.listdir(directory), ["out.json"])
            with open(os.path.join(directory, "out.json")) as file:
                report = json.load(file)
        self.assertEqual(len(report["ranks"]), 3)
        self.assertEqual(report["wrong"], 0)
        for size in report["sizes"]:
            for place in ("out_of_place", "in_place"):
                samples = size[place]["samples_us"]
                self.assertEqual([len(s) for s in samples], [7, 7, 7])

    def test_without_checks_nothing_is_called_right(self):
        done = run("--ranks", "2", "-e", "1K", "-n", "2", "-c", "0")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual([row[8] for row in rows(done.stdout)], ["N/A"])


class BadInput(unittest.TestCase):

    def check_refused(self, says, *arguments, **options):
        done = run(*arguments, **options)
        self.assertEqual(done.returncode, 1, arguments)
        self.assertEqual(done.stdout, "")
        self.assertRegex(done.stderr, says)
        # Said once.
        self.assertEqual(done.stderr.count("allreduce: "), 1, done.stderr)

    def test_options(self):
        self.check_refused("float32", "--ranks", "2", "-d", "float99")
        self.check_refused("average", "--ranks", "2", "-o", "xor")
        self.check_refused("256M", "--ranks", "2", "-b", "12Q")
        self.check_refused("negative", "--ranks", "2", "-b", "-5")
        self.check_refused("must not be above", "--ranks", "2", "-b", "2M",
                           "-e", "1M")
        self.check_refused("stepfactor", "--ranks", "2", "-f", "1")
        self.check_refused("1024", "--ranks", "0")
        self.check_refused("1024", "--ranks", "1025")
        self.check_refused("iters", "--ranks", "2", "-n", "0")

    def test_more_memory_than_there_is(self):
        self.check_refused("need .* bytes", "--ranks", "8", "-b", "1T")

    def test_json_path_that_cannot_be_written(self):
        self.check_refused("/no/such/directory", "--ranks", "2", "-e", "1K",
                           "-J", "/no/such/directory/x.json")

    def test_neither_launcher_nor_ranks(self):
        done = run("-e", "1K")
        self.assertEqual(done.returncode, 1)
        self.assertIn("--ranks 8", done.stderr)

    def test_ranks_inside_of_a_job(self):
        self.check_refused("RINGPIPE_RANK", "--ranks", "2",
                           environment={"RINGPIPE_RANK": "0"})

    def test_an_error_of_all_ranks_is_said_once(self):
        self.check_refused("nosuchdevice0", "--ranks", "3", "-e", "1K",
                           environment={"RINGPIPE_DEVICE": "nosuchdevice0"})

    def test_bad_environment(self):
        self.check_refused("RINGPIPE_DEPTH", "--ranks", "2", "-e", "1K",
                           environment={"RINGPIPE_DEPTH": "0"})


class Terminal(unittest.TestCase):

    def test_a_long_run_shows_progress_and_ends_at_ctrl_c(self):
        terminal, stderr = pty.openpty()
        with subprocess.Popen(
            [PROGRAM, "--ranks", "2", "-e", "64K", "-n", "10000000"],
            env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=stderr,
            start_new_session=True) as launcher:
            os.close(stderr)
            shown = b""
            while b" %  " not in shown:
                self.assertTrue(
                    select.select([terminal], [], [], PATIENCE_S)[0])
                shown += os.read(terminal, 4096)
            # To all processes in the foreground, as a terminal does it.
            os.killpg(launcher.pid, signal.SIGINT)
            text, _ = launcher.communicate(timeout=PATIENCE_S)
        os.close(terminal)
        self.assertEqual(launcher.returncode, 128 + signal.SIGINT)
        self.assertIn(b"64K float32 sum out of place", shown)
        self.assertNotIn(b" %  ", text)


class Failure(unittest.TestCase):

    def test_a_killed_rank_ends_the_run_within_2_s(self):
        with subprocess.Popen(
            [PROGRAM, "--ranks", "3", "-e", "1M", "-n", "10000000"],
            env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True) as launcher:
            # The list of ranks is printed when all have joined.
            pid = None
            for line in launcher.stdout:
                match = re.match(r"#  Rank  2 Pid +(\d+)", line)
                if match:
                    pid = int(match.group(1))
                if "(elements)" in line:
                    break
            self.assertIsNotNone(pid)
            os.kill(pid, signal.SIGKILL)
            killed = time.monotonic()
            _, errors = launcher.communicate(timeout=PATIENCE_S)
            # Both pipes at their end: no rank is left.
            self.assertLess(time.monotonic() - killed, 2)
        self.assertEqual(launcher.returncode, 128 + signal.SIGKILL)
        self.assertRegex(errors, r"rank 2 \(pid %d\) was killed by signal 9" %
                         pid)
        # The others found out by themselves, and one of them says so.
        self.assertRegex(errors, r"peer lost: .*rank 2")


if __name__ == "__main__":
    unittest.main()
