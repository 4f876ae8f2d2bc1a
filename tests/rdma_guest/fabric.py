"""The RDMA devices of the guest: what they have sent, and what can befall them.

rdma_guest names them in the environment.
"""

import os
import pathlib
import subprocess
import time

MTU_BYTES = 4096  # of RDMA, on the guest's interfaces


class Device:
    """One device and its interface; `suffix` as in rdma_guest's variables."""

    def __init__(self, suffix=""):
        self.name = os.environ["RDMA_DEV" + suffix]
        self.address = os.environ["RDMA_ADDR" + suffix]
        self.interface = os.environ["RDMA_NETDEV" + suffix]
        self.port = pathlib.Path("/sys/class/infiniband", self.name, "ports/1")

    def sent_packets(self):
        """RoCE packets ever sent. siw counts none."""
        return int((self.port / "hw_counters/sent_pkts").read_text())

    def set_link(self, state):
        """`state` is "up" or "down"; returns when the port has followed."""
        _ip("link", "set", self.interface, state)
        wanted = "ACTIVE" if state == "up" else "DOWN"
        deadline = time.monotonic() + 10
        while wanted not in (self.port / "state").read_text():
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.name} is not {wanted}")

    def replace_neighbour(self, address, mac):
        """Sends packets for `address` to `mac` from now on."""
        _ip("neigh", "replace", address, "dev", self.interface, "lladdr", mac,
            "nud", "permanent")

    def throttle(self, rate):
        """Sends at most so much from now on: "80mbit"."""
        # More than Soft-RoCE lets wait here, so that nothing is lost.
        _run("tc", "qdisc", "replace", "dev", self.interface, "root", "tbf",
             "rate", rate, "burst", "64kb", "limit", "16mb")

    def mac(self):
        return _read_interface(self.interface, "address")


def _run(*command):
    subprocess.run(command, check=True, timeout=20)


def _ip(*arguments):
    _run("ip", *arguments)


def _read_interface(interface, file):
    return pathlib.Path("/sys/class/net", interface, file).read_text().strip()


def interface_bytes(interface):
    """What an interface has ever sent."""
    return int(_read_interface(interface, "statistics/tx_bytes"))


def kind():
    """"rxe", "siw-2ns", ...: rdma_guest's --device."""
    return os.environ["RDMA_KIND"]


def restore_paths():
    """Between two hosts, after a link was down or a neighbour replaced: as
    guest_devices made them."""
    for device, other, table in zip(devices(), reversed(devices()), ("101", "102")):
        _ip("route", "replace", other.address + "/32", "dev", device.interface,
            "src", device.address, "table", table)
        device.replace_neighbour(other.address, other.mac())


def is_iwarp():
    return kind().startswith("siw")


def has_two_hosts():
    return "-2ns" in kind()


def devices():
    """All of them; where there are two hosts, theirs in turn."""
    return [Device(suffix) for suffix in ("", "2", "3", "4")
            if "RDMA_DEV" + suffix in os.environ]


def sent_bytes():
    """At least as much as all devices have ever sent of RDMA payload."""
    if not is_iwarp():
        return MTU_BYTES * sum(device.sent_packets() for device in devices())
    # TCP between two addresses of this machine goes by lo unless it crosses.
    interfaces = {device.interface for device in devices()} | {"lo"}
    return sum(interface_bytes(interface) for interface in interfaces)
