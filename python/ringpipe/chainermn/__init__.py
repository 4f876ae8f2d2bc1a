"""ChainerMN's interface on ringpipe, for numpy arrays.

    import ringpipe.chainermn as chainermn

    comm = chainermn.create_communicator()
    dataset = chainermn.scatter_dataset(dataset, comm, shuffle=True, seed=1)
    optimizer = chainermn.create_multi_node_optimizer(optimizer, comm).setup(model)

`MultiNodeCommunicator` has the methods of ChainerMN's CommunicatorBase (Chainer
7), and `shrink`, by which ranks go on without those that were lost. Neither
Chainer nor MPI is needed: docs/embedding.md says what a model has to have.
"""

from __future__ import annotations

import typing

import ringpipe
from ringpipe.chainermn.communicator import MultiNodeCommunicator
from ringpipe.chainermn.dataset import scatter_dataset
from ringpipe.chainermn.optimizer import create_multi_node_optimizer
from ringpipe.errors import InvalidArgument

__all__ = [
    "MultiNodeCommunicator", "create_communicator", "create_multi_node_optimizer",
    "scatter_dataset",
]

# What ChainerMN's communicators differ in, how they go through the hosts,
# ringpipe chooses by itself.
_NAMES = ("flat", "hierarchical", "naive", "non_cuda_aware", "pure_nccl", "single_node",
          "two_dimensional")


def create_communicator(communicator_name: str = "flat",
                        communicator: ringpipe.Communicator | None = None, *,
                        allreduce_grad_dtype: typing.Any = None, batched_copy: bool = True,
                        secret: str | None = None, host_id: str | None = None,
                        timeout: float | None = None,
                        join_timeout: float | None = None) -> MultiNodeCommunicator:
    """Joins the other ranks. Every rank calls it.

    All names of ChainerMN's are the same communicator; "single_node" is refused if
    there are several hosts. `communicator` is for ranks that have joined already;
    who made it closes it. Without it, the launcher says rank and size.

    `secret`, `host_id`, `timeout` and `join_timeout` are those of
    `ringpipe.Communicator`, and hold for what `split` and `shrink` make too.
    `allreduce_grad_dtype` and `batched_copy` are described at `set_config`.
    """
    if communicator_name not in _NAMES:
        raise InvalidArgument(f'communicator_name is "{communicator_name}"; it is one of '
                              f"{', '.join(_NAMES)}, which are all the same here")
    if communicator is not None and not isinstance(communicator, ringpipe.Communicator):
        raise InvalidArgument(f"communicator is a {type(communicator).__name__}; pass a "
                              "ringpipe.Communicator, or nothing")
    joining = {"secret": secret, "host_id": host_id, "timeout": timeout,
               "join_timeout": join_timeout}
    is_owner = communicator is None
    if communicator is None:
        communicator = ringpipe.Communicator(**joining)  # type: ignore[arg-type]
    try:
        made = MultiNodeCommunicator(communicator, joining, is_owner=is_owner)
        made.set_config("allreduce_grad_dtype", allreduce_grad_dtype)
        made.set_config("batched_copy", batched_copy)
        if communicator_name == "single_node" and made.inter_size > 1:
            raise InvalidArgument(f"the ranks are on {made.inter_size} hosts, and "
                                  'communicator_name is "single_node"; pass "flat"')
    except BaseException:
        if is_owner:
            communicator.close()
        raise
    return made
