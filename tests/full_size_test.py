"""64 Mi float32 elements with every number of ranks: 0 wrong, in host memory and
over the software device.

The sizes that are too large for every day.
"""

import os
import subprocess
import sys
import unittest

PROGRAM = sys.argv.pop(1)


class FullSizeTest(unittest.TestCase):

    def test_64_mi_elements_are_right_with_every_number_of_ranks(self):
        for ranks, device in ((1, ""), (2, "soft"), (3, ""), (5, "soft"),
                              (8, ""), (16, "soft"), (16, "")):
            with self.subTest(ranks=ranks, device=device):
                result = subprocess.run(
                    [PROGRAM, "--ranks", str(ranks), "-b", "256M", "-e", "256M",
                     "-n", "2", "-w", "0"],
                    stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                    timeout=300, check=False,
                    env={**os.environ, "RINGPIPE_DEVICE": device})
                self.assertEqual(result.returncode, 0, result.stdout)
                self.assertIn("Out of bounds values : 0 OK", result.stdout)


if __name__ == "__main__":
    unittest.main()
