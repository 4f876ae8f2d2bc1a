"""Where the ranks of a new communicator meet: those of a split, and those that are
left when others are lost."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import random
import socket
import uuid
from collections.abc import Iterable, Sequence

from ringpipe.chainermn.exchange import Exchange
from ringpipe.errors import ResourceExhausted, Unavailable

# Below the ports of the software device, and those that the kernel hands out.
_PORTS = range(10_240, 16_384)
_PORT_TRIES = 100


def _namespace(kind: str) -> str:
    """This boot of the kernel, and this process's namespace of that kind."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        boot = file.read().strip()
    return f"{boot} {os.stat(f'/proc/self/ns/{kind}').st_ino}"


def _start_of(pid: int | str) -> str | None:
    """When a process started, by which it is told from a later one with its number.
    None if it has ended."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            # Behind the program's name, which may hold anything.
            fields = file.read().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in "ZX" else fields[19]


def _free_port() -> int:
    """A TCP port that is free now."""
    # Not the program's generator: it may have been seeded, alike on all ranks.
    for port in random.SystemRandom().sample(_PORTS, _PORT_TRIES):
        with socket.socket() as trial:
            try:
                trial.bind(("", port))
            except OSError:
                continue
            return port
    raise ResourceExhausted(f"of {_PORT_TRIES} TCP ports from {_PORTS[0]} to {_PORTS[-1]} none "
                            "is free; end what listens there")


def _name_of_root() -> str:
    """The host of rank 0, as the others found it; called there."""
    root = os.environ.get("RINGPIPE_ROOT", "")
    if root and not root.startswith("unix:"):
        return root.rpartition(":")[0].strip("[]")
    return os.environ.get("MASTER_ADDR") or socket.gethostname()


def _address_towards(host: str) -> str:
    """This host's address on the way to `host`."""
    reason: object = "it has no address"
    try:
        # Nothing is sent: to connect such a socket asks the kernel for the route.
        for family, kind, protocol, _, address in socket.getaddrinfo(
                host, 9, type=socket.SOCK_DGRAM):
            with socket.socket(family, kind, protocol) as probe:
                try:
                    probe.connect(address)
                    return str(probe.getsockname()[0])
                except OSError as error:
                    reason = error
    except OSError as error:
        reason = error
    raise Unavailable(f"this host has no address on the way to {host}, the host of rank 0 "
                      f"({reason}); set RINGPIPE_ROOT to HOST:PORT, on all ranks")


@dataclasses.dataclass(frozen=True)
class _Place:
    """Where a rank runs, as it tells the others."""

    host: str  # RINGPIPE_HOST_ID, or as below
    network: str  # ranks with the same one can meet at a unix socket
    processes: str  # ranks with the same one see each other's processes
    pid: int
    start: str | None
    token: str

    @classmethod
    def own(cls, host_id: str | None) -> _Place:
        """This process's."""
        network = _namespace("net")
        host = host_id or os.environ.get("RINGPIPE_HOST_ID") or network
        return cls(host, network, _namespace("pid"), os.getpid(), _start_of("self"),
                   uuid.uuid4().hex)

    def has_ended(self) -> bool:
        """Whether the rank's process has. False where that cannot be seen."""
        return self.processes == _namespace("pid") and _start_of(self.pid) != self.start


@dataclasses.dataclass(frozen=True)
class _Door:
    """Where a rank can listen for ranks of other hosts."""

    address: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.address}]" if ":" in self.address else self.address
        return f"{host}:{self.port}"


class Places:
    """Where the ranks of a communicator run.

    Each rank makes one at the same time. From then on all know the same, so that
    some of them can find each other even when others are gone.
    """

    def __init__(self, exchange: Exchange, host_id: str | None) -> None:
        own = _Place.own(host_id)
        self._places = [_Place(*json.loads(text)) for text in exchange.allgather(
            lambda: json.dumps(dataclasses.astuple(own)).encode())]
        self._hosts = [place.host for place in self._places]
        self._own_address = ""
        self._doors: list[_Door] = []
        if len({place.network for place in self._places}) > 1:
            root = exchange.broadcast(lambda: _name_of_root().encode(), 0).decode()
            self._own_address = (root if own.network == self._places[0].network
                                 else _address_towards(root))
            self.renew_doors(exchange)

    def renew_doors(self, exchange: Exchange) -> None:
        """Finds ports that are free now, if there are several hosts. Collective."""
        if self._own_address:
            self._doors = [_Door(*json.loads(text)) for text in exchange.allgather(
                lambda: json.dumps([self._own_address, _free_port()]).encode())]

    def position(self, rank: int) -> tuple[int, int]:
        """(the number of the rank's host, its number on that host), from 0."""
        hosts = list(dict.fromkeys(self._hosts))
        return (hosts.index(self._hosts[rank]),
                self._hosts[:rank].count(self._hosts[rank]))

    def ranks_beside(self, rank: int) -> int:
        """How many ranks that host has."""
        return self._hosts.count(self._hosts[rank])

    def host_count(self) -> int:
        """How many hosts there are."""
        return len(set(self._hosts))

    def left(self, lost: Iterable[int]) -> list[int]:
        """The ranks that are not `lost`, and whose processes have not been seen to end."""
        return [rank for rank, place in enumerate(self._places)
                if rank not in lost and not place.has_ended()]

    def name(self, occasion: str, members: Sequence[int]) -> str:
        """A job id that only those get who say the same, on this communicator."""
        text = json.dumps([self._places[0].token, occasion, list(members)])
        return "ringpipe-" + hashlib.sha256(text.encode()).hexdigest()[:32]

    def root(self, name: str, members: Sequence[int]) -> str:
        """Where `members` meet, of which the first listens."""
        if len({self._places[rank].network for rank in members}) == 1:
            return f"unix:@{name}"
        return str(self._doors[members[0]])
