"""Arrays in the memory of a CUDA device that a call cannot use are refused by name,
nothing of them is kept, and the communicator goes on."""

import os
import threading
import unittest

import numpy

import ringpipe
from device_memory import CUDA, LEGACY, PER_THREAD, CudaArray, Device, DlpackArray
from tensor import FLOAT, INT, IS_COPIED, READ_ONLY, Tensor

ZEROS = numpy.zeros(12, "float32")


class Described:
    """Says of itself what it is given."""

    def __init__(self, entries):
        self.__cuda_array_interface__ = entries


class WithoutDevice:
    """Has `__dlpack__` alone."""

    def __init__(self, tensor):
        self.tensor = tensor

    def __dlpack__(self, **keywords):
        return self.tensor.__dlpack__(**keywords)


class WithBuffer(bytes):
    """Has the buffer protocol, too, by which it refuses what a call asks."""

    def __new__(cls, tensor):
        self = super().__new__(cls, b"here")
        self.tensor = tensor
        return self

    def __dlpack_device__(self):
        return self.tensor.__dlpack_device__()

    def __dlpack__(self, **keywords):
        return self.tensor.__dlpack__(**keywords)


class RefusalsTest(unittest.TestCase):
    """With a communicator of one rank, which has seen memory of the device."""

    def setUp(self):
        self.device = Device()
        self.comm = ringpipe.Communicator(0, 1, f"unix:@refusals-{os.getpid()}")
        self.addCleanup(self.comm.close)
        self.comm.allreduce(self.array())

    def array(self, **entries):
        return CudaArray(self.device, ZEROS, **entries)

    def tensor(self, **keywords):
        return DlpackArray(self.device, ZEROS, **keywords)

    def refused(self, text, *args, error=ringpipe.InvalidArgument, **keywords):
        """In both calls; what else is in the list is given back."""
        good = self.tensor()
        for call in (self.comm.allreduce, self.comm.iallreduce):
            with self.assertRaisesRegex(error, text):
                call(*args, **keywords)
            if not isinstance(args[0], list) and not keywords:
                with self.assertRaisesRegex(error, text):
                    call([good, args[0]])
        self.assertEqual(good.exporter.releases, len(good.exporter.streams))
        self.comm.allreduce(good)

    def test_what_the_cuda_array_interface_says(self):
        self.refused("it has a mask, which a call does not see", self.array(mask=self.array()))
        self.refused("side by side in C order", self.array(shape=(3, 4), strides=(4, 12)))
        self.refused("side by side in C order", self.array(shape=(3,), strides=(16,)))
        self.refused("read-only, and the call writes it", self.array(data=(4096, True)))
        self.refused(r"version 1 of __cuda_array_interface__; ringpipe has 2 and 3",
                     self.array(version=1))
        self.refused("version 4 of", self.array(version=4))
        self.refused("byte order", self.array(typestr=">f4"))
        self.refused("its elements are float32; ringpipe has", self.array(typestr="<c8"))
        self.refused("typestr is 'float'", self.array(typestr="float"))
        self.refused("stream is 0, which __cuda_array_interface__ does not allow",
                     self.array(stream=0))
        self.refused("stream is -1, which", self.array(stream=-1))
        self.refused(r"not as it has to be \(TypeError", self.array(stream="legacy"))
        self.refused(r"not as it has to be \(TypeError", self.array(data=None))
        self.refused(r"not as it has to be \(KeyError: 'version'",
                     Described({"data": (4096, False)}))
        self.refused("an address or a length below 0", self.array(data=(-4096, False)))
        self.refused("an address or a length below 0", self.array(shape=(-3, -4)))
        self.refused("is null", self.array(data=(0, False)))

    def test_what_is_right_is_not_refused(self):
        self.comm.allreduce(self.array(shape=(3, 4), strides=(16, 4)))
        self.comm.allreduce(self.array(shape=(1, 12), strides=(999, 4)))
        self.comm.allreduce(self.array(shape=(0, 4), strides=(999, 9), data=(0, False)))
        self.comm.allreduce(self.array(data=(self.array().address, True)), out=self.array())
        self.comm.broadcast(self.array(data=(self.array().address, True)))
        self.comm.allreduce(self.array(stream=0), stream=LEGACY)  # says it itself
        self.comm.allreduce(WithBuffer(self.tensor()))
        read_only = self.tensor(flags=READ_ONLY)
        self.comm.allreduce(read_only, out=self.tensor())
        self.assertEqual(read_only.exporter.releases, 1)

    def test_read_only_where_dlpack_cannot_say_it(self):
        self.refused("it is read-only, and the call writes it; pass a copy",
                     WithBuffer(Tensor(numpy.zeros(12, "float32"), 2, version=(0, 8))))
        array = self.tensor(version=(0, 8))
        array.__class__ = type("BothWays", (DlpackArray,), {
            "__cuda_array_interface__": {"data": (array.address, True)}})
        self.refused("read-only, and the call writes it", array)
        self.comm.allreduce(array, out=self.tensor())

    def test_what_dlpack_says(self):
        self.refused("side by side; pass x.contiguous", self.tensor(strides=(2,)))
        self.refused("read-only, and the call writes it", self.tensor(flags=READ_ONLY))
        self.refused("it exports a copy", self.tensor(flags=IS_COPIED))
        self.refused("exported by DLPack 2, and ringpipe has DLPack 1",
                     self.tensor(version=(2, 0)))
        self.refused("device type 2, and not what its __dlpack_device__ says",
                     self.tensor(says=1))
        self.refused("device type 1, and not what its __dlpack_device__ says",
                     Tensor(numpy.zeros(3), 2, says=CUDA))
        self.refused("device type 2, and not what its __dlpack_device__ says",
                     WithoutDevice(self.tensor()))
        self.comm.allreduce(WithoutDevice(Tensor(numpy.zeros(3), 2)))
        self.refused(r"not CUDA's \(ROCm, DLPack type 10\); copy it to the host",
                     Tensor(numpy.zeros(3), 2, device=10))

    def test_what_the_cuda_array_interface_says_of_its_extent(self):
        wrong = r"not as it has to be \(TypeError"
        more = "a shape and a typestr that make more bytes than memory can have"
        beyond = "from which its elements end beyond the last one"
        below = "an address or a length below 0"
        for text, entries in (
                (below, {"shape": (12, -1)}), (below, {"shape": (-1, 0)}),
                (below, {"data": (-1, False)}),
                (wrong, {"shape": (12.0,)}), (wrong, {"shape": ("12",)}),
                (wrong, {"shape": (None,)}), (wrong, {"shape": 12}),
                (wrong, {"data": (4096.5, False)}), (wrong, {"data": ("4096", False)}),
                (wrong, {"version": 3.5}), (wrong, {"strides": (4.0,)}),
                (wrong, {"strides": 4}),
                ("is null", {"data": (None, False)}),
                (more, {"shape": (1 << 32, 1 << 32)}), (more, {"shape": (1 << 61,)}),
                (more, {"shape": (1 << 62, 4)}), (more, {"shape": (1 << 70,)}),
                (more, {"shape": (1 << 70,), "strides": (4,)}),
                (more, {"shape": (0,), "typestr": f"<f{1 << 64}"}),
                (beyond, {"data": (1 << 64, False)}),
                (beyond, {"data": ((1 << 64) + self.array().address, False)}),
                (beyond, {"data": ((1 << 64) - 4, False)}),
                ("has 0 strides for 1 dimensions", {"strides": ()}),
                ("has 2 strides for 1 dimensions", {"strides": (48, 4)}),
                ("has 1 strides for 2 dimensions", {"shape": (0, 4), "strides": (4,)}),
                ("side by side in C order", {"strides": (-4,)}),
                ("its stream is 18446744073709551616, which is no stream's number",
                 {"stream": 1 << 64})):
            with self.subTest(entries):
                self.refused(text, self.array(**entries))

    def test_what_dlpack_says_of_its_extent(self):
        """The device's tensors and the host's, with versions and without."""
        self.check_extents(self.tensor)
        self.check_extents(lambda **keywords: self.tensor(version=(0, 8), **keywords))
        self.check_extents(lambda **keywords: Tensor(ZEROS, FLOAT, **keywords))
        self.check_extents(lambda **keywords: Tensor(ZEROS, FLOAT, version=(1, 0), **keywords))

    def check_extents(self, new):
        more = "the lengths of its DLPack capsule make more bytes than memory can have"
        beyond = "and ends beyond the last address"
        apart = "do not lie side by side"
        for text, keywords in (
                (more, {"lengths": (1 << 32, 1 << 32)}), (more, {"lengths": (1 << 61,)}),
                (more, {"lengths": (1 << 62, 4)}), (more, {"lengths": ((1 << 63) - 1,)}),
                (more, {"lengths": (1 << 62, 1 << 62), "strides": (1 << 62, 1)}),
                (more, {"lengths": ((1 << 62) + 3, 1), "strides": (1, 1)}),
                ("has length -1 in dimension 1, which is below 0", {"lengths": (12, -1)}),
                ("has length -3 in dimension 0", {"lengths": (-3, -4)}),
                ("has length -1 in dimension 0", {"lengths": (-1, 0)}),
                (apart, {"strides": (-1,)}), (apart, {"lengths": (3, 4), "strides": (-4, 1)}),
                (apart, {"lengths": (2, 6), "strides": (0, 1)}),
                ("has -1 dimensions; ringpipe has 0 to 64", {"fields": {"dimensions": -1}}),
                ("has 65 dimensions", {"lengths": (1,) * 65}),
                ("has 2147483647 dimensions", {"fields": {"dimensions": (1 << 31) - 1}}),
                ("has -2147483648 dimensions", {"fields": {"dimensions": -(1 << 31)}}),
                ("has 1 dimensions, and its shape is null", {"fields": {"shape": None}}),
                (beyond, {"fields": {"offset": (1 << 64) - 1}}),
                (beyond, {"fields": {"offset": 47, "data": (1 << 64) - 48}}),
                (beyond, {"fields": {"offset": 1, "data": (1 << 64) - 48}})):
            with self.subTest(keywords):
                tensor = new(**keywords)
                self.refused(text, tensor)
                exporter = getattr(tensor, "exporter", tensor)
                self.assertEqual(exporter.releases, len(exporter.streams))
        for keywords in ({"lengths": (1 << 62, 1 << 62, 0)},
                         {"lengths": (0, 1 << 62, 1 << 62), "strides": (-1, -1, -1)},
                         {"lengths": (12,) + (1,) * 63},
                         {"lengths": (1, 12), "strides": (-5, 1)},
                         {"lengths": (), "fields": {"shape": None}}):
            with self.subTest(keywords):
                self.comm.allreduce(new(**keywords))

    def test_elements_that_are_no_whole_bytes(self):
        for new in (self.tensor, lambda **keywords: Tensor(ZEROS, FLOAT, **keywords)):
            self.refused("its elements are", new(fields={"bits": 12}))
            self.refused("dtype is uint8, which has 1 bytes, and the array's elements have 0",
                         new(fields={"bits": 12}), dtype="uint8")

    def test_lists_that_no_memory_holds(self):
        """Whose elements together are more than a number of them can say."""
        quarter = {"lengths": ((1 << 62) + 4,), "fields": {"code": INT, "bits": 8}}
        pieces = [self.tensor(**quarter) for _ in range(4)]
        self.refused("list has more than memory can hold", pieces)
        self.assertEqual([piece.exporter.releases for piece in pieces], [2] * 4)

    def test_refused_tensors_are_given_back(self):
        for keywords in ({"strides": (2,)}, {"flags": READ_ONLY}, {"version": (2, 0)},
                         {"says": 1}, {"version": (0, 8), "strides": (2,)}):
            tensor = self.tensor(**keywords)
            with self.assertRaises(ringpipe.InvalidArgument):
                self.comm.allreduce(tensor)
            self.assertEqual(tensor.exporter.releases, 1, keywords)

    def test_streams(self):
        x = self.array()
        self.refused("stream is 0, which may be either default stream: pass 1", x, stream=0)
        self.refused("stream is -2; pass the number", x, stream=-2)
        self.refused("pass the number of a CUDA stream, such as PyTorch's stream.cuda_stream", x,
                     stream="legacy", error=TypeError)
        self.refused("too large", x, stream=1 << 63, error=OverflowError)
        one, other = self.device.stream(), self.device.stream()
        self.refused(f"CUDA stream {one}, and another after that of {other}.*pass its number as "
                     "stream=", self.array(stream=one), out=self.array(stream=other))
        self.refused(f"CUDA stream {one}, and another after that of 1",
                     [self.array(stream=one), self.tensor()])
        self.comm.allreduce([self.array(stream=one), self.tensor()], stream=other)
        self.comm.allreduce([self.array(stream=one), self.array(), self.array(stream=one)])
        numpy_array = numpy.zeros(3)
        self.comm.allreduce(numpy_array, stream=one)

    def test_a_new_array_of_the_kind_that_x_has(self):
        with self.assertRaisesRegex(ringpipe.InvalidArgument, "CudaArray; pass out="):
            self.comm.allgather(self.array())

    def test_memory_of_another_device(self):
        array = CudaArray(Device(1), ZEROS)
        self.device.make_current()
        self.refused("cuda:1", array)

    def test_a_thread_whose_current_device_is_another(self):
        """The legacy default stream is that of the arrays' device; the thread's own, and
        that of arrays of the host, the current one's."""
        array, tensor = self.array(), self.tensor()
        self.addCleanup(self.device.make_current)
        Device(1)
        for keywords in {"stream": PER_THREAD}, {"x": ZEROS.copy(), "stream": LEGACY}:
            x = keywords.pop("x", tensor)
            with self.assertRaisesRegex(ringpipe.InvalidArgument, "which is cuda:1; make the"):
                self.comm.allreduce(x, **keywords)
        self.assertEqual(tensor.exporter.releases, 1)
        self.comm.allreduce(tensor)
        self.comm.allreduce(array, stream=LEGACY)
        self.comm.allreduce(array)  # nothing has to be waited for
        self.comm.allreduce(CudaArray(self.device, numpy.zeros(0, "float32")), stream=LEGACY)

    def test_an_error_of_the_exporter_is_the_cause(self):
        class Broken(DlpackArray):
            """Raises."""

            def __dlpack__(self, **_):
                raise BufferError("it requires a gradient")

        self.refused("Broken cannot be used in a call: it requires a gradient",
                     Broken(self.device, ZEROS))

    def test_an_interrupt_in_an_exporter_stays_one(self):
        class Interrupted(DlpackArray):
            """As if Ctrl-C came there."""

            def __dlpack__(self, **_):
                raise KeyboardInterrupt

        self.refused("", Interrupted(self.device, ZEROS), error=KeyboardInterrupt)


class WithoutDriverTest(unittest.TestCase):

    def test_a_stream_of_a_thread_without_a_device_is_refused(self):
        errors = []

        def call():
            try:
                with ringpipe.Communicator(0, 1, f"unix:@refused-{os.getpid()}") as comm:
                    comm.allreduce(numpy.zeros(3), stream=LEGACY)
            except ringpipe.InvalidArgument as error:
                errors.append(str(error))

        thread = threading.Thread(target=call)
        thread.start()
        thread.join()
        self.assertRegex(errors[0], "which is none; make the communicator's current")


if __name__ == "__main__":
    unittest.main()
