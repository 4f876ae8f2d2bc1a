"""An optimizer whose steps are of all ranks' gradients."""

from __future__ import annotations

import typing
from collections.abc import Callable

from ringpipe.chainermn.communicator import MultiNodeCommunicator
from ringpipe.chainermn.model import Model, parameters
from ringpipe.errors import InvalidArgument


class MultiNodeOptimizer:
    """An optimizer that takes the mean of the gradients before it steps.

    As ChainerMN's, the first `update` does not step: it makes the parameters of all
    ranks those of rank 0. So does each `update` after parameters were added or
    filled. All other attributes are those of the optimizer itself.
    """

    def __init__(self, actual_optimizer: typing.Any, communicator: MultiNodeCommunicator,
                 zero_fill: bool) -> None:
        # __setattr__ below sets those of the optimizer.
        self.__dict__.update(actual_optimizer=actual_optimizer, communicator=communicator,
                             zero_fill=zero_fill, _model=None, _known=None)

    def setup(self, model: Model) -> MultiNodeOptimizer:
        """Has the optimizer work on `model`."""
        self.actual_optimizer.setup(model)
        self.__dict__["_model"] = model
        return self

    @property
    def target(self) -> Model:
        """The model."""
        model = self.__dict__["_model"]
        if model is None:
            model = getattr(self.actual_optimizer, "target", None)
        if model is None:
            raise InvalidArgument("the optimizer has no model; call setup(model) first")
        return model

    def update(self, lossfun: Callable[..., typing.Any] | None = None, *args: typing.Any,
               **keywords: typing.Any) -> None:
        """Steps by the mean of all ranks' gradients: those that the parameters have,
        or of `lossfun(*args, **keywords)`, whose result has `backward()`."""
        target = self.target
        if lossfun is not None:
            loss = lossfun(*args, **keywords)
            target.cleargrads()
            loss.backward()
        known = [(name, parameter.data is not None) for name, parameter in parameters(target)]
        if known != self.__dict__["_known"]:
            self.communicator.bcast_data(target)
            self.__dict__["_known"] = known
        else:
            self.communicator.multi_node_mean_grad(target, self.zero_fill)
            self.actual_optimizer.update()

    def __getattr__(self, name: str) -> typing.Any:
        return getattr(self.__dict__["actual_optimizer"], name)

    def __setattr__(self, name: str, value: typing.Any) -> None:
        setattr(self.actual_optimizer, name, value)


def create_multi_node_optimizer(actual_optimizer: typing.Any,
                                communicator: MultiNodeCommunicator,
                                double_buffering: bool = False,
                                zero_fill: bool = True) -> MultiNodeOptimizer:
    """`actual_optimizer`, by the gradients of all ranks.

    It is any object with `setup(model)` and `update()`, which steps by the gradients
    that the parameters have. `zero_fill` is that of `multi_node_mean_grad`.
    """
    if double_buffering:
        raise NotImplementedError("double_buffering is not in this version of ringpipe")
    if not callable(getattr(actual_optimizer, "update", None)):
        raise InvalidArgument(f"a {type(actual_optimizer).__name__} is no optimizer: it has no "
                              "update()")
    return MultiNodeOptimizer(actual_optimizer, communicator, zero_fill)
