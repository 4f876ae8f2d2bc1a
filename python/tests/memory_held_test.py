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
