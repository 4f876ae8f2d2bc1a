"""An exporter of DLPack."""

import ctypes

CPU = 1
INT, UINT, FLOAT, BFLOAT = 0, 1, 2, 4
READ_ONLY, IS_COPIED = 1, 2


class _Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device", ctypes.c_int32 * 2),
                ("dimensions", ctypes.c_int32), ("code", ctypes.c_uint8),
                ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)),
                ("offset", ctypes.c_uint64)]


_DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _Managed(ctypes.Structure):
    _fields_ = [("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", _DELETER)]


class _Versioned(ctypes.Structure):
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32),
                ("context", ctypes.c_void_p), ("deleter", _DELETER), ("flags", ctypes.c_uint64),
                ("tensor", _Tensor)]


def capsule(managed, name):
    """A capsule with that structure, which has to live as long."""
    new = ctypes.pythonapi.PyCapsule_New
    new.restype = ctypes.py_object
    new.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    return new(ctypes.addressof(managed), name, None)


class Exporter:
    """Gives memory by DLPack, and counts what is given back.

    `version` is that of capsules: (0, 8) has no versions, nor `max_version`. `says` is
    the device that `__dlpack_device__` has, if it is another than the capsule's. A
    `deleter` of the test's own counts itself. `lengths` is another shape than the
    memory's, and `fields` replace what the capsule's structure has.
    """

    def __init__(self, address, shape, code, bits, *, device=CPU, says=None, strides=None,
                 version=(0, 8), flags=0, deleter=None, lengths=None, fields=None):
        shape = shape if lengths is None else lengths
        self.releases = 0
        self.streams = []  # that it was asked for
        self._says = device if says is None else says
        self._version = version
        self._shape = (ctypes.c_int64 * len(shape))(*shape)
        self._strides = None if strides is None else (ctypes.c_int64 * len(shape))(*strides)
        self._tensor = _Tensor(**{
            "data": address - 64, "device": (device, 0), "dimensions": len(shape), "code": code,
            "bits": bits, "lanes": 1, "shape": self._shape, "strides": self._strides,
            "offset": 64, **(fields or {})})
        deleter = _DELETER(self._release) if deleter is None else \
            ctypes.cast(deleter, _DELETER)
        if version < (1, 0):
            self._managed = _Managed(tensor=self._tensor, deleter=deleter)
        else:
            self._managed = _Versioned(major=version[0], minor=version[1], deleter=deleter,
                                       flags=flags, tensor=self._tensor)

    def _release(self, _):
        self.releases += 1

    def __dlpack_device__(self):
        return (self._says, 0)

    def __dlpack__(self, *, stream=None, **versions):
        if self._version < (1, 0) and versions:
            raise TypeError("__dlpack__() got an unexpected keyword argument")
        self.streams.append(stream)
        if self._version < (1, 0):
            return capsule(self._managed, b"dltensor")
        assert versions["max_version"] >= (1, 0), versions
        return capsule(self._managed, b"dltensor_versioned")


class Tensor(Exporter):
    """The memory of a numpy array."""

    def __init__(self, array, code, **keywords):
        self.array = array
        super().__init__(array.ctypes.data, array.shape, code, array.itemsize * 8, **keywords)
