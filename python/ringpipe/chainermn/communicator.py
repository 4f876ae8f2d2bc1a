"""The communicator with ChainerMN's methods."""

from __future__ import annotations

import contextlib
import functools
import json
import operator
import pickle
import time
import types
import typing
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy

import ringpipe
from ringpipe.chainermn import model as models
from ringpipe.chainermn.exchange import Exchange
from ringpipe.chainermn.layout import Arrays, Layout, Message, dumps, loads, pieces
from ringpipe.chainermn.meeting import Places
from ringpipe.errors import Aborted, InvalidArgument, PeerLost, Timeout

# How long `shrink` tries, and its attempts, which end so that it can look again.
_SHRINK_S = 30.0
_FIRST_ATTEMPT_S = 1.0
_LAST_ATTEMPT_S = 0.1

_GRADIENT_TYPES = ("float16", "float32", "float64")


def _later(name: str) -> typing.NoReturn:
    raise NotImplementedError(f"{name} comes with a later version of ringpipe; until then use "
                              "bcast, scatter, gather or alltoall, which all ranks call")


class MultiNodeCommunicator:
    """The ranks of a job, with the methods of ChainerMN's CommunicatorBase.

    `create_communicator`, `split` and `shrink` make them. All ranks make the same
    calls in the same order.

    - Arrays are numpy arrays or numbers, of any type that has no Python objects;
      those of `allreduce` and of gradients are of ringpipe's types. Results are new
      arrays.
    - A message is an array or a tuple of arrays. Types and shapes of messages may
      differ by rank: `gather`, `allgather`, `alltoall`, `scatter` and `bcast` tell
      them to the others first.
      If an argument is wrong on one rank, these raise on all ranks that wait for it.
    - Methods that end in `_obj` pass any object by pickle: a rank that sends one can run
      code where it arrives.
    - Errors are ringpipe's; after one that is final, `shrink` or `finalize` remain.
    """

    def __init__(self, communicator: ringpipe.Communicator,
                 joining: dict[str, typing.Any] | None = None, *, is_owner: bool = False) -> None:
        self._in_config_scope = False
        self._config: dict[str, typing.Any] = {"allreduce_grad_dtype": None, "batched_copy": True}
        self._communicator = communicator
        self._joining = dict(joining or {})
        self._is_owner = is_owner
        self._exchange = Exchange(communicator)
        self._places = Places(self._exchange, self._joining.get("host_id"))
        self._splits = 0

    @property
    def communicator(self) -> ringpipe.Communicator:
        """The ringpipe.Communicator below, for its calls."""
        return self._communicator

    @property
    def rank(self) -> int:
        """This process's number among the ranks, from 0."""
        return self._communicator.rank

    @property
    def size(self) -> int:
        """How many ranks there are."""
        return self._communicator.size

    @property
    def intra_rank(self) -> int:
        """This rank's number among those of its host."""
        return self._places.position(self.rank)[1]

    @property
    def intra_size(self) -> int:
        """How many ranks this host has."""
        return self._places.ranks_beside(self.rank)

    @property
    def inter_rank(self) -> int:
        """The number of this host."""
        return self._places.position(self.rank)[0]

    @property
    def inter_size(self) -> int:
        """How many hosts there are."""
        return self._places.host_count()

    def __enter__(self) -> MultiNodeCommunicator:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 traceback: types.TracebackType | None) -> None:
        self.finalize()

    def __repr__(self) -> str:
        return f"<ringpipe.chainermn.MultiNodeCommunicator on {self._communicator!r}>"

    def finalize(self) -> None:
        """Closes the communicator, unless its ringpipe.Communicator is the caller's.
        Does nothing the second time."""
        if self._is_owner:
            self._communicator.close()

    # --- Configuration ----------------------------------------------------------------

    def set_config(self, name: str, value: typing.Any = True) -> None:
        """Sets one of these:

        `allreduce_grad_dtype`: the type in which gradients are added up, "float16",
        "float32" or "float64"; None: each in its own.
        `batched_copy`: nothing depends on it; gradients are not copied.
        """
        if name not in self._config:
            raise InvalidArgument(f'there is no configuration "{name}"; there are '
                                  f"{', '.join(self._config)}")
        if name == "allreduce_grad_dtype" and value is not None:
            value = numpy.dtype(value)
            if value.name not in _GRADIENT_TYPES:
                raise InvalidArgument(f"allreduce_grad_dtype is {value}; it is one of "
                                      f"{', '.join(_GRADIENT_TYPES)}, or None")
        self._config[name] = value

    def get_config(self, name: str | None = None) -> typing.Any:
        """The value of one, or all as a new dict."""
        if name is None:
            return dict(self._config)
        if name not in self._config:
            raise InvalidArgument(f'there is no configuration "{name}"; there are '
                                  f"{', '.join(self._config)}")
        return self._config[name]

    @contextlib.contextmanager
    def config_scope(self) -> Iterator[None]:
        """In it, attributes that are set are configuration:

            with comm.config_scope():
                comm.allreduce_grad_dtype = "float32"
        """
        self._in_config_scope = True
        try:
            yield
        finally:
            self._in_config_scope = False

    def __setattr__(self, name: str, value: typing.Any) -> None:
        if getattr(self, "_in_config_scope", False) and not name.startswith("_"):
            self.set_config(name, value)
        else:
            object.__setattr__(self, name, value)

    def __getattr__(self, name: str) -> typing.Any:
        if name in self.__dict__.get("_config", {}):
            return self._config[name]
        raise AttributeError(f"{type(self).__name__} has no {name}")

    # --- Communicators of some of the ranks -------------------------------------------

    def split(self, color: int | None, key: int) -> MultiNodeCommunicator | None:
        """A communicator of the ranks that give the same `color`, in the order of
        their `key`, then of their rank. With the color None: no communicator."""
        told: list[tuple[int | None, int]] = [json.loads(text) for text in self._exchange.allgather(
            lambda: json.dumps([color if color is None else operator.index(color),
                                operator.index(key)]).encode())]
        self._places.renew_doors(self._exchange)
        self._splits += 1
        if color is None:
            return None
        members = [rank for _, rank in sorted((its_key, rank)
                                              for rank, (its_color, its_key) in enumerate(told)
                                              if its_color == color)]
        return self._join(f"split {self._splits}", members, self._joining)

    def shrink(self, lost: Iterable[int] = (), join_timeout: float | None = None) -> \
            MultiNodeCommunicator:
        """A communicator of the ranks that are left, in the order of their ranks, after
        others were lost. This one is finalized.

        The ranks that are left call it, also those that learn of the loss later. `lost`
        is what the PeerLost has as its `ranks`. Ranks whose processes have ended on this
        host need not be named, and may do so meanwhile. Others have to be, by all ranks.
        If the ranks do not find each other, it raises Timeout (30 s, or `join_timeout`).
        """
        gone = set(lost)
        if not gone <= set(range(self.size)) or self.rank in gone:
            raise InvalidArgument(f"shrink: lost is {sorted(gone)}, and this is rank {self.rank} "
                                  f"of {self.size}; pass the `ranks` of the PeerLost")
        limit = join_timeout or self._joining.get("join_timeout") or _SHRINK_S
        deadline = time.monotonic() + limit
        attempt_s = _FIRST_ATTEMPT_S
        while True:
            members = self._places.left(gone)
            left_s = deadline - time.monotonic()
            try:
                made = self._join("without lost ranks", members,
                                  {**self._joining, "join_timeout": min(attempt_s, left_s)})
                break
            except (Timeout, PeerLost, Aborted):
                # One of them may have ended, or has looked before another one ended.
                attempt_s *= 2
                if deadline - time.monotonic() < _LAST_ATTEMPT_S:
                    raise
        made._joining = dict(self._joining)  # pylint: disable=protected-access
        # Closed before, this one would be a rank that left, to those who come late.
        self.finalize()
        return made

    def _join(self, occasion: str, members: Sequence[int],
              joining: dict[str, typing.Any]) -> MultiNodeCommunicator:
        name = self._places.name(occasion, members)
        communicator = ringpipe.Communicator(
            members.index(self.rank), len(members), self._places.root(name, members), job_id=name,
            **joining)
        try:
            made = MultiNodeCommunicator(communicator, joining, is_owner=True)
        except BaseException:
            communicator.close()
            raise
        made._config.update(self._config)  # pylint: disable=protected-access
        return made

    # --- Arrays -----------------------------------------------------------------------

    def allreduce(self, data: Arrays) -> Arrays:
        """The sum over all ranks. Their messages have one layout."""
        message = Message.of(data)
        out = message.layout.make()
        if message.arrays:
            self._communicator.allreduce(message.arrays, out=out)
        return message.layout.packed(out)

    def bcast(self, data: Arrays, max_buf_len: int | None = None, root: int = 0) -> Arrays:
        """What `data` is on rank `root`; others' is ignored. `max_buf_len` is not used."""
        del max_buf_len
        self._check_root(root)
        message: list[Message] = []

        def described() -> bytes:
            message.append(Message.of(data))
            return dumps([message[0].layout])

        layout = loads(self._exchange.broadcast(described, root))[0]
        arrays = message[0].arrays if message else layout.make()
        self._communicator.broadcast(pieces(arrays), root)
        return data if message else layout.packed(arrays)

    def gather(self, data: Arrays, root: int = 0) -> tuple[Arrays, ...] | None:
        """The messages of all ranks, by rank, on rank `root`; None elsewhere."""
        self._check_root(root)
        message, layouts = self._describe(data)
        counts = [layout.nbytes for layout in layouts]
        if self.rank != root:
            self._communicator.gather(pieces(message.arrays), root, counts=counts)
            return None
        arrays = [layout.make() for layout in layouts]
        self._communicator.gather(pieces(message.arrays), root, out=pieces(sum(arrays, [])),
                                  counts=counts)
        return tuple(layout.packed(one) for layout, one in zip(layouts, arrays))

    def allgather(self, x: Arrays) -> tuple[Arrays, ...]:
        """The messages of all ranks, by rank."""
        message, layouts = self._describe(x)
        arrays = [layout.make() for layout in layouts]
        self._communicator.allgather(pieces(message.arrays), out=pieces(sum(arrays, [])),
                                     counts=[layout.nbytes for layout in layouts])
        return tuple(layout.packed(one) for layout, one in zip(layouts, arrays))

    def scatter(self, xs: Sequence[Arrays], root: int = 0) -> Arrays:
        """This rank's message of the `xs` of rank `root`: a tuple with one for each
        rank, or an array whose first axis is the ranks'. Others' `xs` are ignored."""
        self._check_root(root)
        messages: list[Message] = []

        def described() -> bytes:
            messages.extend(self._one_for_each(xs))
            return dumps([message.layout for message in messages])

        layouts = loads(self._exchange.broadcast(described, root))
        return self._scatter(messages, layouts, root)

    def alltoall(self, xs: Sequence[Arrays]) -> tuple[Arrays, ...]:
        """What each rank's `xs` have for this one. `xs` are a message for each rank."""
        messages: list[Message] = []

        def described() -> bytes:
            messages.extend(self._one_for_each(xs))
            return dumps([message.layout for message in messages])

        table = [loads(text) for text in self._exchange.allgather(described)]
        if len({layout.nbytes for row in table for layout in row}) > 1:
            # All parts of an alltoall are equally long.
            return tuple(self._scatter(messages, row, root) for root, row in enumerate(table))
        column = [row[self.rank] for row in table]
        arrays = [layout.make() for layout in column]
        self._communicator.alltoall(pieces(sum((message.arrays for message in messages), [])),
                                    out=pieces(sum(arrays, [])))
        return tuple(layout.packed(one) for layout, one in zip(column, arrays))

    def send(self, data: Arrays, dest: int, tag: int = 0) -> None:
        """Not in this version."""
        _later("send")

    def recv(self, source: int, tag: int = 0) -> Arrays:
        """Not in this version."""
        _later("recv")

    def _describe(self, data: Arrays) -> tuple[Message, list[Layout]]:
        """This rank's message, and the layouts of all ranks'."""
        message: list[Message] = []

        def described() -> bytes:
            message.append(Message.of(data))
            return dumps([message[0].layout])

        texts = self._exchange.allgather(described)
        return message[0], [loads(text)[0] for text in texts]

    def _one_for_each(self, xs: Sequence[Arrays]) -> list[Message]:
        if not isinstance(xs, (tuple, list, numpy.ndarray)) or len(xs) != self.size:
            length = f" of {len(xs)}" if hasattr(xs, "__len__") else ""
            raise InvalidArgument(f"xs is a {type(xs).__name__}{length}; pass a tuple with an "
                                  f"array for each of the {self.size} ranks")
        return [Message.of(x) for x in xs]

    def _scatter(self, messages: list[Message], layouts: list[Layout], root: int) -> Arrays:
        mine = layouts[self.rank]
        arrays = mine.make()
        x = None
        if self.rank == root:
            x = pieces(sum((message.arrays for message in messages), []))
        self._communicator.scatter(x, root, out=pieces(arrays),
                                   counts=[layout.nbytes for layout in layouts])
        return mine.packed(arrays)

    def _check_root(self, root: int) -> None:
        if not 0 <= root < self.size:
            raise InvalidArgument(f"root is {root}; it is a rank from 0 to {self.size - 1}")

    # --- Objects ----------------------------------------------------------------------

    def bcast_obj(self, obj: typing.Any, max_buf_len: int | None = None, root: int = 0) -> \
            typing.Any:
        """The `obj` of rank `root`. `max_buf_len` is not used."""
        del max_buf_len
        self._check_root(root)
        received = pickle.loads(self._exchange.broadcast(lambda: pickle.dumps(obj), root))
        return obj if self.rank == root else received

    def gather_obj(self, obj: typing.Any, root: int = 0) -> list[typing.Any] | None:
        """The objects of all ranks, by rank, on rank `root`; None elsewhere."""
        self._check_root(root)
        texts = self._exchange.gather(lambda: pickle.dumps(obj), root)
        return None if texts is None else [pickle.loads(text) for text in texts]

    def allgather_obj(self, obj: typing.Any) -> list[typing.Any]:
        """The objects of all ranks, by rank."""
        return [pickle.loads(text)
                for text in self._exchange.allgather(lambda: pickle.dumps(obj))]

    def allreduce_obj(self, obj: typing.Any) -> typing.Any:
        """The objects of all ranks, added up by + in the order of the ranks."""
        return functools.reduce(operator.add, self.allgather_obj(obj))

    def scatter_obj(self, objs: Sequence[typing.Any], root: int = 0) -> typing.Any:
        """This rank's of the `objs` of rank `root`, one for each rank. Others' are
        ignored."""
        return self.scatter_made_obj(lambda: objs, root)

    def scatter_made_obj(self, make: Callable[[], Sequence[typing.Any]], root: int) -> typing.Any:
        """As `scatter_obj`, of what `make()` returns, which is called on rank `root`
        alone. What it raises, all ranks raise."""
        self._check_root(root)

        def pickled() -> list[bytes]:
            objs = make()
            if len(objs) != self.size:
                raise InvalidArgument(f"objs has {len(objs)} objects; pass one for each of the "
                                      f"{self.size} ranks")
            return [pickle.dumps(obj) for obj in objs]

        return pickle.loads(self._exchange.scatter(pickled, root))

    def send_obj(self, obj: typing.Any, dest: int, tag: int = 0) -> None:
        """Not in this version."""
        _later("send_obj")

    def recv_obj(self, source: int, tag: int = 0) -> typing.Any:
        """Not in this version."""
        _later("recv_obj")

    # --- Models -----------------------------------------------------------------------

    def bcast_data(self, model: models.Model) -> None:
        """Makes all parameters what they are on rank 0."""
        models.broadcast_data(self._communicator, self._exchange, model)

    def multi_node_mean_grad(self, model: models.Model, zero_fill: bool = False) -> None:
        """Makes each gradient its mean over all ranks: the sum times 1 / size.

        All gradients of one type are one call, which neither packs nor copies them.
        With `zero_fill`, a parameter without gradient has zeros, as long as it has
        data on all ranks. Without, a parameter is left out on all ranks where any rank
        has no gradient of it: its `grad` is then None everywhere.
        """
        models.mean_gradients(self._communicator, model, zero_fill,
                              self._config["allreduce_grad_dtype"])

    def broadcast_data(self, model: models.Model) -> None:
        """Deprecated: use `bcast_data`."""
        warnings.warn("broadcast_data is deprecated; use bcast_data", DeprecationWarning,
                      stacklevel=2)
        self.bcast_data(model)

    def allreduce_grad(self, model: models.Model, zero_fill: bool = False) -> None:
        """Deprecated: use `multi_node_mean_grad`."""
        warnings.warn("allreduce_grad is deprecated; use multi_node_mean_grad",
                      DeprecationWarning, stacklevel=2)
        self.multi_node_mean_grad(model, zero_fill)
