"""An exporter of DLPack."""

import ctypes


class Tensor:
    """An array that has DLPack alone, and counts what is given back."""

    class Managed(ctypes.Structure):
        _fields_ = [("data", ctypes.c_void_p), ("device", ctypes.c_int32 * 2),
                    ("dimensions", ctypes.c_int32), ("code", ctypes.c_uint8),
                    ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                    ("shape", ctypes.POINTER(ctypes.c_int64)),
                    ("strides", ctypes.POINTER(ctypes.c_int64)),
                    ("offset", ctypes.c_uint64), ("context", ctypes.c_void_p),
                    ("deleter", ctypes.CFUNCTYPE(None, ctypes.c_void_p))]

    def __init__(self, array, code, device=1, strides=None):
        self.array = array
        self.releases = 0
        self._shape = (ctypes.c_int64 * array.ndim)(*array.shape)
        self._managed = self.Managed(
            data=array.ctypes.data - 64, device=(device, 0), dimensions=array.ndim, code=code,
            bits=array.itemsize * 8, lanes=1, shape=self._shape, offset=64,
            strides=None if strides is None else (ctypes.c_int64 * array.ndim)(*strides),
            deleter=type(self.Managed().deleter)(self._release))

    def _release(self, _):
        self.releases += 1

    def __dlpack__(self, stream=None):
        new = ctypes.pythonapi.PyCapsule_New
        new.restype = ctypes.py_object
        new.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return new(ctypes.addressof(self._managed), b"dltensor", None)

    def __dlpack_device__(self):
        return (1, 0)
