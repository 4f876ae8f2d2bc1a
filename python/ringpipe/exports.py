"""Arrays of other libraries, which give their memory by DLPack or by
`__cuda_array_interface__`: of the host, or of a CUDA device."""

from __future__ import annotations

import math
import operator
import re
import typing

from ringpipe.data_types import DataType
from ringpipe.errors import InvalidArgument

# Behind the last address, and behind the last length that memory can have.
_ADDRESSES, _LENGTHS = 1 << 64, 1 << 63

# The legacy default stream, as both number it.
_LEGACY = 1

# DLDeviceType. Managed memory belongs to a device, pinned memory to the host.
_CPU, _CUDA, _CUDA_HOST, _CUDA_MANAGED = 1, 2, 3, 13
_OTHER_DEVICES = {4: "OpenCL", 7: "Vulkan", 8: "Metal", 9: "VPI", 10: "ROCm", 11: "ROCm (host)",
                  14: "oneAPI", 15: "WebGPU", 16: "Hexagon", 17: "MAIA"}

_TYPES = {"f4": DataType.FLOAT32, "f8": DataType.FLOAT64, "f2": DataType.FLOAT16,
          "i1": DataType.INT8, "i4": DataType.INT32, "i8": DataType.INT64,
          "u1": DataType.UINT8, "u4": DataType.UINT32, "u8": DataType.UINT64}


def tensor(array: typing.Any, writable: bool, stream: int) -> tuple[object, bool]:
    """A DLPack capsule of `array`, and whether it is memory of a CUDA device. The
    exporter makes `stream` wait for what it has under way (-1: not). `writable`: the
    call writes it.

    Raises what the exporter raises; the extension calls this.
    """
    # Who says no device has host memory alone.
    device = int(array.__dlpack_device__()[0]) if hasattr(array, "__dlpack_device__") else _CPU
    if device not in (_CPU, _CUDA, _CUDA_HOST, _CUDA_MANAGED):
        name = _OTHER_DEVICES.get(device, "unknown")
        raise InvalidArgument(f"it is in the memory of a device that is not CUDA's ({name}, DLPack "
                              f"type {device}); copy it to the host")
    on_device = device in (_CUDA, _CUDA_MANAGED)
    if writable and on_device and _is_read_only(array):
        raise InvalidArgument("it is read-only, and the call writes it; pass a copy")
    keywords = {"stream": stream} if on_device else {}
    try:
        return array.__dlpack__(max_version=(1, 0), **keywords), on_device
    except TypeError:  # it has no versions: DLPack before 1.0
        return array.__dlpack__(**keywords), on_device


def _is_read_only(array: typing.Any) -> bool:
    """Whether the array says so by its other interface: DLPack before 1.0 cannot."""
    try:
        return bool(array.__cuda_array_interface__["data"][1])
    except Exception:  # pylint: disable=broad-exception-caught  # it has none, or not for this
        return False


class _CudaArray(typing.NamedTuple):
    """What `__cuda_array_interface__` says."""

    version: int
    address: int
    read_only: bool
    shape: tuple[int, ...]
    typestr: str
    strides: tuple[int, ...] | None
    mask: object
    stream: int | None

    @classmethod
    def of(cls, described: typing.Any) -> _CudaArray:
        """Raises what it finds wrong."""
        address, read_only = described["data"]
        strides, stream = described.get("strides"), described.get("stream")
        return cls(operator.index(described["version"]),
                   0 if address is None else operator.index(address), bool(read_only),
                   tuple(map(operator.index, described["shape"])), str(described["typestr"]),
                   None if strides is None else tuple(map(operator.index, strides)),
                   described.get("mask"), None if stream is None else operator.index(stream))


def cuda_array(array: typing.Any, writable: bool,
               asks_stream: bool) -> tuple[int, int, int, int, int]:
    """What `array.__cuda_array_interface__` says: the address, how many elements, the
    bytes of one, their `DataType` (0: none), and, if it is asked, after the work of which
    stream they are ready (0: they are). The extension calls this."""
    try:
        described = _CudaArray.of(array.__cuda_array_interface__)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InvalidArgument("its __cuda_array_interface__ is not as it has to be "
                              f"({type(error).__name__}: {error})") from error
    if described.version not in (2, 3):
        raise InvalidArgument(f"it has version {described.version} of __cuda_array_interface__; "
                              "ringpipe has 2 and 3")
    if described.mask is not None:
        raise InvalidArgument("it has a mask, which a call does not see; fill in what is masked, "
                              "and pass an array without a mask")
    if writable and described.read_only:
        raise InvalidArgument("it is read-only, and the call writes it; pass a copy")
    code, item_bytes = _element(described.typestr)
    count = math.prod(described.shape)
    _check_extent(described, count, item_bytes)
    if not _is_contiguous(described, item_bytes):
        raise InvalidArgument("its elements do not lie side by side in C order; pass a contiguous "
                              "copy")
    return (described.address, count, item_bytes, _TYPES.get(code, 0),
            _awaited(described) if asks_stream and count else 0)


def _element(typestr: str) -> tuple[str, int]:
    """"<f4" as ("f4", 4)."""
    match = re.fullmatch(r"([<>|=]?)([a-zA-Z](\d+))", typestr)
    if match is None:
        raise InvalidArgument(f"its typestr is {typestr!r}, which is none of numpy's")
    order, code, item_bytes = match.groups()
    if order == ">":
        raise InvalidArgument("its byte order is not this machine's; convert it")
    return code, int(item_bytes)


def _check_extent(described: _CudaArray, count: int, item_bytes: int) -> None:
    """Raises if there is no memory where it says that its elements are."""
    interface = "its __cuda_array_interface__ has"
    if described.address < 0 or min(described.shape, default=0) < 0:
        raise InvalidArgument(f"{interface} an address or a length below 0")
    if max(count, 1) * item_bytes >= _LENGTHS:
        raise InvalidArgument(f"{interface} a shape and a typestr that make more bytes than memory "
                              "can have")
    if described.address + count * item_bytes >= _ADDRESSES:
        raise InvalidArgument(f"{interface} an address, {described.address:#x}, from which its "
                              "elements end beyond the last one")
    if described.strides is not None and len(described.strides) != len(described.shape):
        raise InvalidArgument(f"{interface} {len(described.strides)} strides for "
                              f"{len(described.shape)} dimensions")


def _is_contiguous(described: _CudaArray, item_bytes: int) -> bool:
    if described.strides is None or 0 in described.shape:
        return True
    expected = []
    step = item_bytes
    for length in reversed(described.shape):
        expected.append(step)
        step *= length
    return all(length == 1 or stride == contiguous for length, stride, contiguous
               in zip(described.shape, described.strides, reversed(expected)))


def _awaited(described: _CudaArray) -> int:
    if described.version == 2:  # it says nothing of streams
        return _LEGACY
    if described.stream is None:
        return 0
    if described.stream <= 0:
        raise InvalidArgument(f"its stream is {described.stream}, which __cuda_array_interface__ "
                              "does not allow (0 may be either default stream); pass the stream's "
                              "number as stream=: 1 is the legacy one, 2 the thread's")
    if described.stream >= _LENGTHS:
        raise InvalidArgument(f"its stream is {described.stream}, which is no stream's number")
    return described.stream
