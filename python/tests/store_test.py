"""The ranks find each other by an object of the program's, with put and get."""

import os
import pathlib
import tempfile
import time
import unittest

import numpy

import ringpipe


class FolderStore:
    """A store of files."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)

    def put(self, key, value):
        file = self.folder / key.replace("/", "_")
        file.with_suffix(".new").write_bytes(value)
        file.with_suffix(".new").rename(file)

    def get(self, key, timeout):
        file = self.folder / key.replace("/", "_")
        deadline = time.monotonic() + timeout
        while not file.exists():
            if time.monotonic() >= deadline:
                return None
            time.sleep(0.005)
        return file.read_bytes()


def join_by(store):
    place = int(os.environ.pop("RINGPIPE_RANK")), int(os.environ.pop("RINGPIPE_SIZE"))
    del os.environ["RINGPIPE_ROOT"]
    with ringpipe.Communicator(*place, store=store) as comm:
        return float(comm.allreduce(numpy.full(1, comm.rank))[0])


class StoreTest(unittest.TestCase):

    def test_the_ranks_find_each_other_by_it(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(ringpipe.spawn(join_by, 4, (FolderStore(folder),)), [6.0] * 4)

    def test_what_it_raises_is_raised(self):
        class Bad:
            def put(self, key, value):
                raise LookupError(f"no place for {key}")

            def get(self, key, timeout):
                return b"x" * 5000

        with self.assertRaisesRegex(LookupError, "no place for ringpipe/"):
            ringpipe.Communicator(0, 2, store=Bad())
        with self.assertRaisesRegex(ringpipe.InvalidArgument, "get returned 5000 bytes"):
            ringpipe.Communicator(1, 2, store=Bad())
        with self.assertRaises(AttributeError):
            ringpipe.Communicator(0, 2, store=3)

    def test_its_code_cannot_end_a_communicator(self):
        old = [ringpipe.Communicator(0, 1, f"unix:@store-test-{os.getpid()}-{number}")
               for number in range(3)]

        class Closing:
            def put(self, key, value):
                del old[0]  # does not wait for anything
                old[0].close()

            get = put

        for rank in (0, 1):
            with self.assertRaisesRegex(ringpipe.InvalidArgument, r"in a store's put or get"):
                ringpipe.Communicator(rank, 2, store=Closing())
        self.assertFalse(old[0].closed)
        old[0].allreduce(numpy.ones(1))
        old[0].close()


if __name__ == "__main__":
    unittest.main()
