"""Parameters of models, of whatever framework, and their gradients.

A model has `namedparams()`, which gives pairs of a name and a parameter, or
`params()`, which gives parameters. A parameter has `data` and `grad`, numpy arrays
or None. Parameters are taken in the order of their names; without names of their
own, in the order of `params()`, which then has to be the same on all ranks.
"""

from __future__ import annotations

import json
import typing
import warnings

import numpy

import ringpipe
from ringpipe.chainermn.exchange import Exchange
from ringpipe.chainermn.layout import as_bytes, contiguous
from ringpipe.errors import InvalidArgument

Model = typing.Any
Parameter = typing.Any
Named = list[tuple[str, Parameter]]

# What a rank has of a parameter.
_NOTHING, _DATA, _GRADIENT = range(3)


def parameters(model: Model) -> Named:
    """Names and parameters, in the order of all ranks."""
    if hasattr(model, "namedparams"):
        return sorted(model.namedparams(), key=lambda pair: pair[0])
    if not hasattr(model, "params"):
        raise InvalidArgument(f"a {type(model).__name__} is no model: it has neither params() nor "
                              "namedparams()")
    found = list(model.params())
    names = [getattr(parameter, "name", None) for parameter in found]
    if None not in names and len(set(names)) == len(names):
        return sorted(zip(names, found), key=lambda pair: pair[0])
    return [(f"number {index}", parameter) for index, parameter in enumerate(found)]


def _described(named: Named) -> list[tuple[str, str]]:
    """Of each parameter its name, and what has to be the same on all ranks."""
    return [(name, "no data" if parameter.data is None else
             f"{parameter.data.dtype} {tuple(parameter.data.shape)}")
            for name, parameter in named]


def _check_alike(models: list[list[list[str]]]) -> None:
    """That all ranks' are like rank 0's."""
    for rank, model in enumerate(models):
        if model == models[0]:
            continue
        if len(model) != len(models[0]):
            ours, theirs = f"{len(models[0])} parameters", str(len(model))
        else:
            first, other = next(pair for pair in zip(models[0], model) if pair[0] != pair[1])
            ours, theirs = f"the parameter {' of '.join(first)}", " of ".join(other)
        raise InvalidArgument(f"the models differ: rank 0's has {ours}, rank {rank}'s {theirs}; "
                              "make the same model on all ranks")


def broadcast_data(communicator: ringpipe.Communicator, exchange: Exchange,
                   model: Model) -> None:
    """Makes all parameters what they are on rank 0, in one call."""
    named = parameters(model)
    _check_alike([json.loads(text) for text in exchange.allgather(
        lambda: json.dumps(_described(named)).encode())])
    filled = [parameter for _, parameter in named if parameter.data is not None]
    arrays = [_usable(parameter.data) for parameter in filled]
    if not arrays:
        return
    communicator.broadcast([as_bytes(array) for array in arrays], 0)
    if communicator.rank != 0:
        for parameter, array in zip(filled, arrays):
            if array is not parameter.data:
                parameter.data = array


def _usable(array: numpy.ndarray) -> numpy.ndarray:
    """`array`, or a copy of it where a call cannot write it in its place."""
    found = contiguous(array)
    return found if found.flags.writeable else found.copy()


def _check_number(communicator: ringpipe.Communicator, number: int) -> None:
    """That all ranks have as many parameters: the calls that follow are as long."""
    most, least = communicator.allreduce(numpy.array([number, -number]), "max")
    if most != -least:
        raise InvalidArgument(f"the models differ: this rank's has {number} parameters, and the "
                              f"ranks' have from {-least} to {most}; make the same model on all "
                              "ranks")


def _take_part(communicator: ringpipe.Communicator, named: Named, zero_fill: bool) -> list[bool]:
    """Which parameters take part in the mean: the same answer on all ranks."""
    states = numpy.array([_NOTHING if parameter.data is None else
                          _DATA if parameter.grad is None else _GRADIENT
                          for _, parameter in named], numpy.uint8)
    # The most that a rank has, and the least, in one small call.
    bounds = communicator.allreduce(numpy.concatenate([states, _GRADIENT - states]), "max")
    most = bounds[:len(named)]
    least = _GRADIENT - bounds[len(named):]
    part = least >= (_DATA if zero_fill else _GRADIENT)
    lost = [name for (name, _), left_out in zip(named, ~part & (most == _GRADIENT)) if left_out]
    if lost:
        warnings.warn(f"the gradients of {', '.join(lost)} are left out on all ranks, because some "
                      "rank has none; pass zero_fill=True to count it as zero there",
                      RuntimeWarning, stacklevel=4)
    return [bool(takes_part) for takes_part in part]


def mean_gradients(communicator: ringpipe.Communicator, model: Model, zero_fill: bool,
                   dtype: numpy.dtype | None) -> None:
    """Makes each gradient its mean over the ranks, computed in `dtype` if given."""
    named = parameters(model)
    _check_number(communicator, len(named))
    if not named:
        return
    by_type: dict[numpy.dtype, list[Parameter]] = {}
    for (_, parameter), takes_part in zip(named, _take_part(communicator, named, zero_fill)):
        if not takes_part:
            parameter.grad = None
            continue
        if parameter.grad is None:
            parameter.grad = numpy.zeros_like(parameter.data)
        kind = parameter.grad.dtype if dtype is None else dtype
        by_type.setdefault(kind, []).append(parameter)
    for kind in sorted(by_type, key=str):
        _mean(communicator, by_type[kind], kind)


def _mean(communicator: ringpipe.Communicator, chosen: list[Parameter],
          kind: numpy.dtype) -> None:
    """One call for all, which reads and writes the gradients where they lie."""
    sums = [_usable(parameter.grad.astype(kind, copy=False)) for parameter in chosen]
    communicator.allreduce(sums)
    scale = 1.0 / communicator.size
    for parameter, total in zip(chosen, sums):
        numpy.multiply(total, scale, out=total)
        if total is not parameter.grad:
            parameter.grad = total.astype(parameter.grad.dtype, copy=False)
