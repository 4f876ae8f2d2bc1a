"""After MemoryHeld the arrays of the call are never given back.

    memory_held_test.py PRELOADED
"""

import gc
import os
import sys
import unittest
import weakref

import numpy

import ringpipe
from tensor import FLOAT, Tensor


class Described:
    """Has `__cuda_array_interface__`."""

    def __init__(self):
        self.__cuda_array_interface__ = {"shape": (3,), "typestr": "<f4", "version": 3,
                                         "data": (4096, False)}


class MemoryHeldTest(unittest.TestCase):

    def setUp(self):
        self.comm = ringpipe.Communicator(0, 1, f"unix:@held-{os.getpid()}")

    def check_held(self, call):
        x, out = bytearray(8), numpy.zeros(8, "uint8")
        array = weakref.ref(out)
        call(x, out)
        with self.assertRaises(BufferError):
            x.append(1)
        self.comm.close()
        del out
        gc.collect()
        with self.assertRaises(BufferError):
            x.append(1)
        self.assertIsNotNone(array())

    def test_of_a_call(self):
        def call(x, out):
            with self.assertRaises(ringpipe.MemoryHeld):
                self.comm.allreduce(x, out=out)
        self.check_held(call)

    def test_of_a_list(self):
        def call(x, out):
            with self.assertRaises(ringpipe.MemoryHeld):
                self.comm.allreduce([x], out=[out])
        self.check_held(call)

    def test_of_arrays_of_other_libraries(self):
        tensors = [Tensor(numpy.zeros(3), FLOAT, version=version) for version in ((0, 8), (1, 0))]
        described = Described()
        array = weakref.ref(described)
        for x in (*tensors, described):
            with self.assertRaises(ringpipe.MemoryHeld):
                self.comm.allreduce(x)
        self.comm.close()
        del described, x
        gc.collect()
        self.assertEqual([tensor.releases for tensor in tensors], [0, 0])
        self.assertIsNotNone(array())

    def test_of_a_request(self):
        def call(x, out):
            request = self.comm.iallreduce(x, out=out)
            with self.assertRaises(ringpipe.MemoryHeld):
                request.wait()
        self.check_held(call)

    def test_of_a_request_that_is_dropped(self):
        self.check_held(lambda x, out: self.comm.iallreduce(x, out=out) and None)


if __name__ == "__main__":
    PRELOADED = os.path.abspath(sys.argv.pop(1))
    if os.environ.get("LD_PRELOAD") != PRELOADED:
        os.environ["LD_PRELOAD"] = PRELOADED
        os.execv(sys.executable, [sys.executable, __file__, PRELOADED, *sys.argv[1:]])
    unittest.main()
