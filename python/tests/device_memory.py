"""Memory of a CUDA device, and arrays of it such as other libraries have: over the
driver, the fake one's as the real one's."""

import ctypes
import threading

import numpy

from tensor import FLOAT, Exporter

CUDA, CUDA_HOST, CUDA_MANAGED = 2, 3, 13
LEGACY, PER_THREAD = 1, 2
PATIENCE_S = 100
_NON_BLOCKING = 1
_ATTACH_GLOBAL = 1
_HOST_FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


def device_count():
    library = ctypes.CDLL("libcuda.so.1")
    count = ctypes.c_int()
    if library.cuInit(ctypes.c_uint(0)) != 0 or library.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return 0
    return count.value


class Device:
    """A device, whose primary context is current on this thread from now on."""

    def __init__(self, number=0):
        self._library = ctypes.CDLL("libcuda.so.1")
        self.call("cuInit", ctypes.c_uint(0))
        device = ctypes.c_int()
        self.call("cuDeviceGet", ctypes.byref(device), ctypes.c_int(number))
        self._context = ctypes.c_void_p()
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), device)
        self.make_current()

    def call(self, name, *args):
        """Calls that function of the driver."""
        error = getattr(self._library, name)(*args)
        if error != 0:
            raise RuntimeError(f"{name}: error {error}")

    def make_current(self):
        """On another thread."""
        self.call("cuCtxSetCurrent", self._context)

    def allocate(self, size, managed=False):
        """The address of so many bytes."""
        address = ctypes.c_uint64()
        if managed:
            self.call("cuMemAllocManaged", ctypes.byref(address), ctypes.c_size_t(size),
                      ctypes.c_uint(_ATTACH_GLOBAL))
        else:
            self.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
        return address.value

    def free(self, address):
        """Waits for the device."""
        self.call("cuMemFree_v2", ctypes.c_uint64(address))

    def allocate_pinned(self, size):
        """The address of so many bytes of the host's; for good."""
        address = ctypes.c_void_p()
        self.call("cuMemHostAlloc", ctypes.byref(address), ctypes.c_size_t(size),
                  ctypes.c_uint(0))
        return address.value

    def copy(self, target, source, size):
        """Between any two addresses; done when it returns."""
        self.call("cuMemcpy", ctypes.c_uint64(target), ctypes.c_uint64(source),
                  ctypes.c_size_t(size))
        self.call("cuStreamSynchronize", None)

    def copy_in(self, stream, target, source, size):
        """Puts a copy between addresses of the device into a stream."""
        self.call("cuMemcpyAsync", ctypes.c_uint64(target), ctypes.c_uint64(source),
                  ctypes.c_size_t(size), ctypes.c_void_p(stream))

    def stream(self, blocking=False):
        """The handle of a new stream; for good."""
        stream = ctypes.c_void_p()
        self.call("cuStreamCreate", ctypes.byref(stream),
                  ctypes.c_uint(0 if blocking else _NON_BLOCKING))
        return stream.value

    def let_wait(self, stream, other):
        """`stream` goes on when the device has done what `other` was given."""
        event = ctypes.c_void_p()
        self.call("cuEventCreate", ctypes.byref(event), ctypes.c_uint(0))
        self.call("cuEventRecord", event, ctypes.c_void_p(other))
        self.call("cuStreamWaitEvent", ctypes.c_void_p(stream), event, ctypes.c_uint(0))
        self.call("cuEventDestroy_v2", event)


class HeldStream:
    """A stream that, from `with` on, does what it is given once it is let go."""

    def __init__(self, device, blocking=False):
        self._device = device
        self._free = threading.Event()
        self._function = _HOST_FUNCTION(self._hold)
        self.is_late = False  # let go by nobody in time
        self.number = device.stream(blocking)

    def _hold(self, _):
        self.is_late = not self._free.wait(PATIENCE_S)

    def let_go(self):
        """Ends the wait."""
        self._free.set()

    def holds(self):
        """Whether nobody has let it go, nor forgotten it."""
        return not self._free.is_set() and not self.is_late

    def __enter__(self):
        self._device.call("cuLaunchHostFunc", ctypes.c_void_p(self.number), self._function, None)
        return self

    def __exit__(self, *_):
        self.let_go()


class DeviceArray:
    """An array of the device's memory, with nothing by which others could use it."""

    def __init__(self, device, values, managed=False):
        self.device = device
        self.dtype = values.dtype
        self.shape = values.shape
        self.bytes = values.nbytes
        self.address = device.allocate(values.nbytes, managed) if values.nbytes else 0
        self.put(values)

    def __del__(self):
        if self.address:
            self.device.free(self.address)

    def put(self, values):
        """Sets all elements."""
        if self.bytes:
            values = numpy.ascontiguousarray(values, self.dtype)
            self.device.copy(self.address, values.ctypes.data, self.bytes)

    def get(self):
        """The elements as a numpy array."""
        values = numpy.empty(self.shape, self.dtype)
        if self.bytes:
            self.device.copy(values.ctypes.data, self.address, self.bytes)
        return values

    def copy_in(self, stream, source):
        """Sets all elements to those of another array, when `stream` gets so far."""
        self.device.copy_in(stream, self.address, source.address, self.bytes)


class CudaArray(DeviceArray):
    """Has `__cuda_array_interface__`; `entries` replace what it says."""

    def __init__(self, device, values, managed=False, **entries):
        super().__init__(device, values, managed)
        self.entries = entries

    @property
    def __cuda_array_interface__(self):
        return {"shape": self.shape, "typestr": self.dtype.str, "version": 3,
                "data": (self.address, False), **self.entries}


class DlpackArray(DeviceArray):
    """Has DLPack. What `work` is, a stream, its owner uses: `__dlpack__` makes the
    stream that it is given wait for it."""

    def __init__(self, device, values, managed=False, work=None, **keywords):
        super().__init__(device, values, managed)
        self.work = work
        keywords.setdefault("device", CUDA_MANAGED if managed else CUDA)
        keywords.setdefault("version", (1, 0))
        self.exporter = Exporter(self.address, self.shape, FLOAT, self.dtype.itemsize * 8,
                                 **keywords)

    def __dlpack_device__(self):
        return self.exporter.__dlpack_device__()

    def __dlpack__(self, *, stream=None, **versions):
        capsule = self.exporter.__dlpack__(stream=stream, **versions)
        if self.work is not None and stream != -1:
            self.device.let_wait(LEGACY if stream is None else stream, self.work)
        return capsule
