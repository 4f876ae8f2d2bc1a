"""What a message of arrays looks like: an array, or a tuple of them."""

from __future__ import annotations

import dataclasses
import json
import math
import typing

import numpy

from ringpipe.errors import InvalidArgument

# By numpy's letters: bool, integers, floating point, complex, times, texts. Messages
# that are only moved go as bytes.
_KINDS = "biufcmMSU"

Arrays = typing.Any  # an array or a number, or a tuple of them


def contiguous(data: typing.Any) -> numpy.ndarray:
    """`data` as an array in C order and of this machine's byte order: itself, where
    it is one."""
    array = numpy.asarray(data, order="C")
    if array.dtype.kind not in _KINDS:
        raise InvalidArgument(f"a {type(data).__name__} of {array.dtype} is no array of numbers; "
                              "pass a numpy array or a tuple of them, or use the function whose "
                              "name ends in _obj")
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def as_bytes(array: numpy.ndarray) -> numpy.ndarray:
    """The memory of `array`, which is in C order."""
    return array.reshape(-1).view(numpy.uint8)


@dataclasses.dataclass(frozen=True)
class Layout:
    """Types and shapes of a message's arrays."""

    is_tuple: bool
    arrays: tuple[tuple[str, tuple[int, ...]], ...]

    @property
    def nbytes(self) -> int:
        """How long the message is."""
        return sum(numpy.dtype(kind).itemsize * math.prod(shape) for kind, shape in self.arrays)

    def make(self) -> list[numpy.ndarray]:
        """New arrays for the message."""
        return [numpy.empty(shape, kind) for kind, shape in self.arrays]

    def packed(self, arrays: list[numpy.ndarray]) -> Arrays:
        """What the caller gets of the message's arrays."""
        return tuple(arrays) if self.is_tuple else arrays[0]

    def to_json(self) -> typing.Any:
        """For `json.dumps`."""
        return [self.is_tuple, self.arrays]

    @classmethod
    def from_json(cls, value: typing.Any) -> Layout:
        """The layout whose `to_json` went through JSON."""
        is_tuple, arrays = value
        return cls(bool(is_tuple), tuple((str(kind), tuple(map(int, shape)))
                                         for kind, shape in arrays))


@dataclasses.dataclass(frozen=True)
class Message:
    """Arrays to be sent, with their layout."""

    layout: Layout
    arrays: list[numpy.ndarray]

    @classmethod
    def of(cls, data: Arrays) -> Message:
        """`data` is an array, a number, or a tuple or a list of them."""
        is_tuple = isinstance(data, (tuple, list))
        arrays = [contiguous(array) for array in (data if is_tuple else [data])]
        return cls(Layout(is_tuple, tuple((array.dtype.str, array.shape) for array in arrays)),
                   arrays)


def dumps(layouts: list[Layout]) -> bytes:
    """Layouts as bytes. No pickle: what a rank sends here cannot run code."""
    return json.dumps([layout.to_json() for layout in layouts]).encode()


def loads(text: bytes) -> list[Layout]:
    """The layouts of `dumps`."""
    return [Layout.from_json(value) for value in json.loads(text)]


def pieces(arrays: list[numpy.ndarray]) -> list[numpy.ndarray]:
    """The memory of arrays as a list that a call takes, which has an array."""
    return [as_bytes(array) for array in arrays] or [numpy.empty(0, numpy.uint8)]
