"""Bad input is refused with a text that says what to do, and the communicator goes on."""

import math
import os
import pathlib
import subprocess
import sys
import unittest

import numpy

import ringpipe
from tensor import Tensor

PACKAGE = pathlib.Path(ringpipe.__file__).parent


class Refusals(unittest.TestCase):
    """With a communicator of one rank."""

    def setUp(self):
        self.comm = ringpipe.Communicator(0, 1, f"unix:@bad-input-{os.getpid()}")
        self.addCleanup(self.comm.close)

    def refused(self, text, call, *args, error=ringpipe.InvalidArgument, **keywords):
        with self.assertRaisesRegex(error, text):
            call(*args, **keywords)
        x = numpy.ones(3)
        self.assertIs(self.comm.allreduce(x), x)

    def test_what_is_no_array(self):
        call = self.comm.allreduce
        self.refused(r"a builtins.float is no array; pass numpy.array", call, 1.0,
                     error=TypeError)
        self.refused("a builtins.dict cannot .*neither the buffer protocol nor DLPack nor "
                     "__cuda_array_interface__", call, {}, error=TypeError)
        self.refused("x or out is None", call, None, error=TypeError)
        self.refused("a builtins.int is no array", call, [1, 2], error=TypeError)
        self.refused("list of arrays is empty", call, [])

    def test_types_that_ringpipe_has_not(self):
        call = self.comm.allreduce
        self.refused(r'holds bools; pass x.view\("uint8"\), with op="max"', call,
                     numpy.zeros(3, bool))
        self.refused("its elements are int16; ringpipe has float32", call,
                     numpy.zeros(3, "int16"))
        self.refused("its elements are complex128", call, numpy.zeros(3, complex))
        self.refused("byte order", call, numpy.zeros(3, ">f4"))
        self.refused("x is float32 and out is float64", call, numpy.zeros(3, "float32"),
                     out=numpy.zeros(3))
        self.refused("number 0 is float64 and number 1 is float32", call,
                     [numpy.zeros(3), numpy.zeros(3, "float32")])
        self.refused("dtype is bfloat16, which has 2 bytes, and the array's elements have 8",
                     call, numpy.zeros(3), dtype="bfloat16")
        self.refused('dtype is "half"', call, numpy.zeros(3), dtype="half")
        self.refused("dtype is 11", call, numpy.zeros(3), dtype=11)

    def test_memory_that_cannot_be_used(self):
        call = self.comm.allreduce
        self.refused(r"C order; pass numpy.ascontiguousarray\(x\)", call,
                     numpy.zeros((4, 4))[:, 1])
        self.refused("C order", call, numpy.asfortranarray(numpy.zeros((4, 4))))
        constant = numpy.zeros(3)
        constant.flags.writeable = False
        self.refused(r"read-only, and the call writes it; pass a copy, x.copy\(\)", call,
                     constant)
        self.refused("read-only", call, b"bytes")
        self.refused("memory of a device", call, Tensor(numpy.zeros(3), 2, device=10))
        self.refused("side by side; pass x.contiguous", call,
                     Tensor(numpy.zeros((2, 2)), 2, strides=(1, 2)))
        self.comm.allreduce(constant, out=numpy.zeros(3))

    def test_what_is_refused_is_not_held(self):
        good, bad = bytearray(8), numpy.zeros(3, "int16")
        for call in (self.comm.allreduce, self.comm.iallreduce):
            with self.assertRaises(ringpipe.InvalidArgument):
                call([good, bad])
            with self.assertRaises(ringpipe.InvalidArgument):
                call(good, out=bad)
            with self.assertRaises(ringpipe.InvalidArgument):
                call(good, out=bytearray(9))
        good.append(1)  # BufferError while something holds it
        tensor = Tensor(numpy.zeros(3), 2, device=2, says=1)
        self.refused("device type 2", self.comm.allreduce, tensor)
        self.assertEqual(tensor.releases, 1)

    def test_lengths(self):
        self.refused("out has 2 elements, and has to have 3: as many as x", self.comm.allreduce,
                     numpy.zeros(3), out=numpy.zeros(2))
        self.refused("x has 3 elements, and has to have 2: size times as many as out",
                     self.comm.reduce_scatter, numpy.zeros(3), out=numpy.zeros(2))
        self.refused("counts has 2 numbers; give one for each of the 1 ranks",
                     self.comm.allgather, numpy.zeros(3), counts=[1, 2])
        self.refused("x has 3 elements, and has to have 2: this rank's number in counts",
                     self.comm.allgather, numpy.zeros(3), counts=[2])
        self.refused("pass out=", self.comm.allgather, [numpy.zeros(3)])
        self.refused("an integer", self.comm.allgather, numpy.zeros(3), counts=[1.5],
                     out=numpy.zeros(3), error=TypeError)
        self.refused("can't convert negative", self.comm.allgather, numpy.zeros(3), counts=[-1],
                     out=numpy.zeros(3), error=OverflowError)

    def test_other_arguments(self):
        call = self.comm.allreduce
        self.refused('op is "mean"; it is "sum", "min"', call, numpy.zeros(3), "mean")
        self.refused("op is 7", call, numpy.zeros(3), 7)
        self.refused("integer", call, numpy.zeros(3), 1.5, error=TypeError)
        self.refused("root", self.comm.broadcast, numpy.zeros(3), 1)
        self.refused("root", self.comm.broadcast, numpy.zeros(3), -1)
        for timeout in (-1, math.nan):
            self.refused("give seconds, math.inf for no limit", call, numpy.zeros(3),
                         timeout=timeout)
        self.refused("real number", call, numpy.zeros(3), timeout="1", error=TypeError)
        self.refused("allocate", self.comm.allocate, (2, -1))
        self.refused("allocate", self.comm.allocate, 2, object)

    def test_after_close(self):
        self.comm.close()
        self.assertTrue(self.comm.closed)
        self.comm.close()
        with self.assertRaisesRegex(ringpipe.InvalidArgument,
                                    r"is closed; make a new one, on every rank: ringpipe.Comm"):
            self.comm.allreduce(numpy.zeros(3))
        with self.assertRaisesRegex(ringpipe.InvalidArgument, "is closed"):
            self.comm.iallreduce(numpy.zeros(3))
        with self.assertRaisesRegex(ringpipe.InvalidArgument, "is closed"):
            self.comm.allocate(3)
        self.comm.abort("too late")

    def test_the_communicators_own(self):
        with self.assertRaisesRegex(ringpipe.InvalidArgument, "give both, or none"):
            ringpipe.Communicator(0)
        with self.assertRaisesRegex(ringpipe.InvalidArgument, "rank"):
            ringpipe.Communicator(2, 2, "unix:@bad-input")
        with self.assertRaisesRegex(ringpipe.InvalidArgument, "RINGPIPE_ROOT"):
            ringpipe.Communicator(0, 2, "nowhere at all")
        with self.assertRaisesRegex(ringpipe.InvalidArgument, "at least 1 rank"):
            ringpipe.spawn(print, 0)


class ImportTest(unittest.TestCase):

    def import_under(self, program):
        done = subprocess.run([sys.executable, "-c", program], check=False, text=True,
                              timeout=60, capture_output=True,
                              env={**os.environ, "PYTHONPATH": str(PACKAGE.parent)})
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_a_sub_interpreter_is_refused(self):
        self.assertIn("sub-interpreter; import it in the main one", self.import_under(
            "try:\n"
            "    import _interpreters as sub\n"  # Python 3.13
            "    one = sub.create('legacy')\n"
            "except ImportError:\n"
            "    import _xxsubinterpreters as sub\n"
            "    one = sub.create()\n"
            "try: print(sub.run_string(one, 'import ringpipe'))\n"
            "except Exception as error: print(error)\n"))

    def test_a_free_threaded_build_is_refused(self):
        self.assertIn("free-threaded builds", self.import_under(
            "import sysconfig\n"
            "real = sysconfig.get_config_var\n"
            "sysconfig.get_config_var = lambda name: name == 'Py_GIL_DISABLED' or real(name)\n"
            "try: import ringpipe\n"
            "except ImportError as error: print(error)\n"))


if __name__ == "__main__":
    unittest.main()
