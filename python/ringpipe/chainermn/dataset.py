"""A dataset, dealt out to the ranks."""

from __future__ import annotations

import typing

import numpy

from ringpipe.chainermn.communicator import MultiNodeCommunicator
from ringpipe.errors import InvalidArgument


def _part(dataset: typing.Any, indices: numpy.ndarray) -> typing.Any:
    if isinstance(dataset, numpy.ndarray):
        return dataset[indices]
    return [dataset[int(index)] for index in indices]


def scatter_dataset(dataset: typing.Any, comm: MultiNodeCommunicator, root: int = 0,
                    shuffle: bool = False, seed: int | None = None,
                    max_buf_len: int | None = None, *,
                    force_equal_length: bool = True) -> typing.Any:
    """This rank's part of rank `root`'s dataset; the others' `dataset` is ignored.

    A dataset has a length and is read by index. Parts of a numpy array are numpy
    arrays, of all else lists of examples. All parts are of one length, by which two
    parts may have an example in common; without `force_equal_length` they differ
    by one example at most, and none is in two. `shuffle` deals examples in the order
    of numpy.random.RandomState(seed). `max_buf_len` is not used.
    """
    del max_buf_len

    def parts() -> list[typing.Any]:
        if not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__"):
            raise InvalidArgument(f"a {type(dataset).__name__} is no dataset: it has no length, or "
                                  "cannot be read by index")
        total = len(dataset)
        order = (numpy.random.RandomState(seed).permutation(total) if shuffle
                 else numpy.arange(total))
        starts = [total * rank // comm.size for rank in range(comm.size + 1)]
        length = -(-total // comm.size)
        return [_part(dataset, order[start:start + length if force_equal_length else end])
                for start, end in zip(starts, starts[1:])]

    return comm.scatter_made_obj(parts, root)
