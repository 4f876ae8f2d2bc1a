"""PyTorch's process groups over ringpipe.

    import ringpipe.torch
    import torch.distributed

    torch.distributed.init_process_group("ringpipe")

Importing it registers the backend; all else is torch's own. Tensors lie in host
memory. docs/embedding.md says what holds.
"""

from __future__ import annotations

import torch
import torch.distributed

from ringpipe import ends

try:
    from ringpipe import _torch
except ImportError as error:
    raise ImportError(
        "ringpipe.torch is not in this ringpipe, or not for this Python: it is compiled for one "
        "version of PyTorch (1.13) and of Python. Build it: bazel build "
        "//python:wheel_with_torch") from error

if torch.__version__.split(".")[:2] != _torch.TORCH_VERSION.split(".")[:2]:
    raise ImportError(f"ringpipe.torch was compiled for PyTorch {_torch.TORCH_VERSION}, and this "
                      f"is {torch.__version__}; build it for this one")


class _Groups:
    """The groups of this process."""

    def close(self) -> None:
        """Ends them all."""
        _torch.close_all()


_groups = _Groups()


def _create(options: torch.distributed.distributed_c10d._DistributedBackendOptions,
            group_options: object) -> torch.distributed.ProcessGroup:
    if group_options is not None:
        raise ValueError("ringpipe has no options of process groups; leave pg_options out. "
                         "Variables (RINGPIPE_...) set it up")
    ends.close_at_end(_groups)
    return _torch.create(options)


def _of(group: torch.distributed.ProcessGroup | None) -> torch.distributed.ProcessGroup:
    if group is None:
        group = torch.distributed.group.WORLD
    if group is None:
        raise RuntimeError("there is no process group: call "
                           "torch.distributed.init_process_group(\"ringpipe\") first")
    return group


def lost_ranks(group: torch.distributed.ProcessGroup | None = None) -> tuple[int, ...]:
    """The other ranks of a ringpipe group that are gone, in ascending order: those that
    have ended, or are out of reach. As torch numbers them in the whole job."""
    return tuple(sorted(_torch.lost_ranks(_of(group))))


def allocate_like(tensor: torch.Tensor,
                  group: torch.distributed.ProcessGroup | None = None) -> torch.Tensor:
    """A new tensor of zeros, of that shape and type, in memory that other ranks of this
    host read and write where it lies: calls on it are faster.

    It may be used as long as it lives, also after destroy_process_group() and after a
    failure, but not in a child of fork.
    """
    return _torch.allocate_like(_of(group), tensor)


torch.distributed.Backend.register_backend("ringpipe", _create, extended_api=True)
