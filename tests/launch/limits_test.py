"""What a rank says whose process may not have what it needs: limits_test.py
PROGRAM. At the creation, each by itself, and not as the loss of another rank.
"""

import os
import sys
import unittest

import job

PROGRAM = os.path.abspath(sys.argv.pop(1))
RANKS = 4


class LimitsTest(unittest.TestCase):

    def setUp(self):
        self.addCleanup(job.kill_descendants)

    def run_with(self, limits, device=""):
        """Returns the ranks, which have ended, by these limits of a shell."""
        processes = [
            job.Process(
                ["sh", "-c", f'{limits}; exec "$@"', "-", PROGRAM, "-b", "64K",
                 "-e", "64K", "-n", "3", "--error-fd", "999"],
                {"PATH": os.environ["PATH"],
                 "RINGPIPE_RANK": str(rank),
                 "RINGPIPE_SIZE": str(RANKS),
                 "RINGPIPE_DEVICE": device,
                 "RINGPIPE_ROOT": f"unix:@limits-{os.getpid()}-{limits}"})
            for rank in range(RANKS)]
        for process in processes:
            self.addCleanup(process.close)
            process.finish()
        return processes

    def check_named(self, resource, limits, device=""):
        for limit in limits:
            for process in self.run_with(f"ulimit {resource} {limit}", device):
                context = f"ulimit {resource} {limit}: {process.stderr}"
                self.assertEqual(process.returncode, 1, context)
                self.assertRegex(process.stderr,
                                 f"resource exhausted: .*ulimit {resource}",
                                 context)
                self.assertNotIn("peer lost", process.stderr, context)

    def test_descriptors(self):
        self.check_named("-n", range(17, 25))

    def test_descriptors_are_counted_before_all_else(self):
        for process in self.run_with("ulimit -n 28"):
            self.assertRegex(
                process.stderr,
                r"to connect 4 ranks: 25 more descriptors are needed and "
                r"\d+ of 28 are left; raise 'ulimit -n' to at least \d+")

    def test_a_soft_limit_of_descriptors_is_raised(self):
        for process in self.run_with("ulimit -S -n 20"):
            self.assertEqual((process.returncode, process.stderr), (0, ""))

    def test_sizes_of_files(self):
        self.check_named("-f", [1, 1000])

    def test_address_space(self):
        self.check_named("-v", [1000000])

    def test_descriptors_of_the_software_device(self):
        self.check_named("-n", range(17, 31), "soft")

    def test_sizes_of_files_of_the_software_device(self):
        self.check_named("-f", [1, 100000], "soft")

    def test_address_space_of_the_software_device(self):
        self.check_named("-v", [1000000, 3000000, 8000000], "soft")

    def test_enough_is_enough(self):
        for device in "", "soft":
            for process in self.run_with("ulimit -n 64; ulimit -v 20000000",
                                         device):
                self.assertEqual((process.returncode, process.stderr),
                                 (0, ""))


if __name__ == "__main__":
    job.adopt_orphans()
    unittest.main()
