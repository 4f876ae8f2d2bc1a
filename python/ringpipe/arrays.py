"""What an array has to be, and new arrays for results."""

from __future__ import annotations

import typing
from collections.abc import Sequence

from ringpipe.errors import InvalidArgument

if typing.TYPE_CHECKING:
    import numpy.typing

    NDArray = numpy.typing.NDArray[typing.Any]

_TYPES = ("float32, float64, float16, bfloat16, int8, int32, int64, uint8, uint32 and uint64")


def _name(array: object) -> str:
    kind = type(array)
    return f"a {kind.__module__}.{kind.__qualname__}"


def _what_is_wrong(array: object, view: memoryview, writable: bool) -> str:
    if not view.c_contiguous:
        return ("its elements do not lie side by side in C order; pass "
                "numpy.ascontiguousarray(x), and copy a result back")
    if writable and view.readonly:
        return "it is read-only, and the call writes it; pass a copy, x.copy()"
    if view.format[:1] in (">", "!"):
        return "its byte order is not this machine's; pass x.astype(x.dtype.newbyteorder('='))"
    if view.format == "?":
        return 'it holds bools; pass x.view("uint8"), with op="max" for or, "min" for and'
    kind = getattr(array, "dtype", f"format {view.format!r}")
    return f"its elements are {kind}; ringpipe has {_TYPES}"


def explain(array: object, writable: bool, cause: BaseException | None) -> typing.NoReturn:
    """Raises why `array` cannot be used in a call; the extension calls this."""
    if array is None:
        raise TypeError("x or out is None, and this rank needs an array there")
    if isinstance(array, (int, float, complex, str)):
        raise TypeError(f"{_name(array)} is no array; pass numpy.array(...), whose value the "
                        "call replaces")
    if cause is not None and not isinstance(cause, Exception):
        raise cause  # KeyboardInterrupt
    try:
        view = memoryview(array)  # type: ignore[arg-type]
    except (TypeError, ValueError, BufferError) as error:
        if hasattr(array, "__dlpack__") or hasattr(array, "__cuda_array_interface__"):
            if cause is None:
                kind = getattr(array, "dtype", "of another type")
                cause = InvalidArgument(f"its elements are {kind}; ringpipe has {_TYPES}")
            raise InvalidArgument(f"{_name(array)} cannot be used in a call: {cause}") from cause
        raise TypeError(f"{_name(array)} cannot be used in a call: it has neither the buffer "
                        f"protocol nor DLPack nor __cuda_array_interface__ ({error}); pass a "
                        "numpy array") from None
    raise InvalidArgument(f"{_name(array)} cannot be used in a call: "
                          f"{_what_is_wrong(array, view, writable)}")


def _numpy() -> typing.Any:
    try:
        import numpy  # pylint: disable=import-outside-toplevel
    except ImportError:
        raise InvalidArgument("out is not given, and there is no numpy to make a new array "
                              "with; install numpy, or pass out=") from None
    return numpy


def _like(array: object) -> NDArray:
    """`array` as a numpy array, for its shape and type."""
    numpy = _numpy()
    if isinstance(array, numpy.ndarray):
        return typing.cast("NDArray", array)
    if isinstance(array, (list, tuple)):
        raise InvalidArgument("x is a list of arrays; pass out=, an array or a list")
    try:
        return typing.cast("NDArray", numpy.asarray(memoryview(array)))  # type: ignore[arg-type]
    except (TypeError, BufferError):
        raise InvalidArgument(f"a new array cannot be made like {_name(array)}; pass "
                              "out=") from None


def _new(shape: tuple[int, ...], like: NDArray) -> NDArray:
    return typing.cast("NDArray", _numpy().empty(shape, like.dtype))


def gathered(array: object, size: int, counts: Sequence[int] | None) -> NDArray:
    """A new array for the parts of all ranks, along the first axis."""
    like = _like(array)
    if counts is not None:
        return _new((sum(int(count) for count in counts),), like)
    first = like.shape[0] if like.ndim else 1
    return _new((size * first, *like.shape[1:]), like)


def scattered(array: object, rank: int, size: int,
              counts: Sequence[int] | None) -> NDArray:
    """A new array for this rank's part of `array`, along the first axis."""
    like = _like(array)
    if counts is not None:
        return _new((int(counts[rank]) if rank < len(counts) else 0,), like)
    if like.ndim == 0 or like.shape[0] % size:
        raise InvalidArgument(f"x has the shape {like.shape}, and its first axis cannot be "
                              f"divided among {size} ranks; pass counts=")
    return _new((like.shape[0] // size, *like.shape[1:]), like)


def same(array: object) -> NDArray:
    """A new array like `array`."""
    like = _like(array)
    return _new(like.shape, like)
