"""Hosts on one machine: network namespaces with one switch between them.

    host 0                     switch                     host 1
    eth0 10.77.0.1  ======  port0 [ bridge ] port1  ======  eth0 10.77.0.2

Everything lasts as long as the processes that hold the namespaces, which end
with this one.
"""

import ctypes
import json
import os
import signal
import subprocess

from tests.launch.job import Process

# Debian has them where only root's PATH looks.
TC = "/sbin/tc"
NFT = "/usr/sbin/nft"
PREFIX = "10.77.0."
PR_SET_PDEATHSIG = 1


def _end_with_parent():
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


class Hosts:
    """`count` hosts, up to 200. Use it in a with statement."""

    def __init__(self, count):
        self.count = count
        self._holders = []
        try:
            self._switch = self._hold()
            self._ip(self._switch, "link add bridge type bridge")
            self._ip(self._switch, "link set bridge up")
            self._hosts = [self._hold() for _ in range(count)]
            for host in range(count):
                self._connect(host)
        except BaseException:
            self.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        """Ends the namespaces; what runs in them must have ended before."""
        for holder in self._holders:
            holder.kill()
            holder.wait()
            holder.stdout.close()
        self._holders = []

    def _hold(self):
        holder = subprocess.Popen(
            ["unshare", "--net", "sh", "-c",
             "ip link set lo up && echo ready && exec sleep infinity"],
            stdout=subprocess.PIPE, preexec_fn=_end_with_parent)
        self._holders.append(holder)
        if holder.stdout.readline() != b"ready\n":
            raise OSError("cannot make a network namespace")
        return holder.pid

    @staticmethod
    def _enter(pid, command):
        return ["nsenter", f"--net=/proc/{pid}/ns/net", "--"] + command

    def _run(self, pid, command):
        return subprocess.run(self._enter(pid, command), check=True,
                              capture_output=True, timeout=20).stdout

    def _ip(self, pid, arguments):
        return self._run(pid, ["ip"] + arguments.split())

    def _connect(self, host):
        pid, port = self._hosts[host], f"port{host}"
        self._ip(self._switch,
                 f"link add {port} type veth peer name eth0 netns {pid}")
        self._ip(self._switch, f"link set {port} master bridge up")
        self._ip(pid, f"addr add {self.address(host)}/24 dev eth0")
        self._ip(pid, "link set eth0 up")

    def add_interface(self, host, name, address):
        """Connects a further interface of a host to the switch."""
        pid, port = self._hosts[host], f"port{host}{name}"
        self._ip(self._switch,
                 f"link add {port} type veth peer name {name} netns {pid}")
        self._ip(self._switch, f"link set {port} master bridge up")
        self._ip(pid, f"addr add {address} dev {name}")
        self._ip(pid, f"link set {name} up")

    def address(self, host):
        """The IPv4 address of a host."""
        return f"{PREFIX}{host + 1}"

    def command(self, host, command):
        """`command`, a list, as it is to be started to run on that host."""
        return self._enter(self._hosts[host], command)

    def run(self, host, command):
        """What `command` prints on that host; it has to succeed at once."""
        return self._run(self._hosts[host], command).decode()

    def bytes(self, host):
        """What its interface has ever received and sent: (rx, tx) in bytes."""
        (link,) = json.loads(
            self._ip(self._hosts[host], "-s -j link show eth0"))
        return link["stats64"]["rx"]["bytes"], link["stats64"]["tx"]["bytes"]

    def _shape(self, pid, interface, rate, slow=None):
        """Lets `interface` send at `rate`; with `slow`, (address, rate), at that
        rate to that address."""
        tc = [TC, "qdisc", "replace", "dev", interface, "root"]
        if slow is None:
            self._run(pid, tc + ["tbf", "rate", rate, "burst", "16kb",
                                 "latency", "50ms"])
            return
        address, slow_rate = slow
        self._run(pid, tc + ["handle", "1:", "htb", "default", "1"])
        for number, class_rate in (("1", rate), ("2", slow_rate)):
            self._run(pid, [TC, "class", "add", "dev", interface, "parent",
                            "1:", "classid", f"1:{number}", "htb", "rate",
                            class_rate, "burst", "16kb", "cburst", "16kb",
                            "quantum", "1514"])
        self._run(pid, [TC, "filter", "add", "dev", interface, "parent", "1:",
                        "protocol", "ip", "u32", "match", "ip", "dst",
                        f"{address}/32", "flowid", "1:2"])

    def throttle_sending(self, host, rate, slow=None):
        """Lets the host send at most at `rate` ("100mbit"); with `slow`,
        (another host, rate), at most at that rate to that host."""
        if slow is not None:
            slow = (self.address(slow[0]), slow[1])
        self._shape(self._hosts[host], "eth0", rate, slow)

    def throttle_receiving(self, host, rate):
        """Lets the switch send to the host at most at `rate`."""
        self._shape(self._switch, f"port{host}", rate)

    def lose(self, host, one_in):
        """Lets the switch lose one in so many of the packets that the host sends,
        at random."""
        # Each by itself, and not what the host hands on for many of them.
        self._ip(self._hosts[host], "link set eth0 gso_max_segs 1")
        chain = f"netdev loss from{host}"
        for command in (
                "add table netdev loss",
                f"add chain {chain} {{ type filter hook ingress device "
                f"port{host} priority 0 ; }}",
                f"add rule {chain} numgen random mod {one_in} 0 drop"):
            self._run(self._switch, [NFT] + command.split())

    def silence(self, host):
        """Lets the switch lose all that comes from and goes to the host; the
        host's link stays up."""
        self._ip(self._switch, f"link set port{host} nomaster")

    def end_silence(self, host):
        """Lets the switch pass it on again."""
        self._ip(self._switch, f"link set port{host} master bridge")

    def drop_answers(self, host, first_port, last_port):
        """Loses what the host would send from these TCP ports, as where a
        firewall drops what is sent to them."""
        self._ip(self._hosts[host], f"rule add ipproto tcp sport {first_port}-"
                                    f"{last_port} blackhole")

    def cut(self, host):
        """Pulls the host's cable out of the switch."""
        self._ip(self._switch, f"link set port{host} down")

    def restore(self, host):
        """Plugs it in again."""
        self._ip(self._switch, f"link set port{host} up")


class Ranks:
    """A job whose rank r is on host placement[r]; else one on each host. Its
    ranks meet at rank 0's host, or at `root`, on `port`. Close it before the
    hosts."""

    def __init__(self, hosts, command, port, extra=None, root=None,
                 placement=None, patience_s=120):
        placement = placement or range(hosts.count)
        self.ranks = []
        for rank, host in enumerate(placement):
            environment = {
                "PATH": os.environ["PATH"],
                "RINGPIPE_RANK": str(rank),
                "RINGPIPE_SIZE": str(len(placement)),
                "RINGPIPE_ROOT": f"{root or hosts.address(placement[0])}:{port}",
                "RINGPIPE_SECRET": "a secret of this test",
                **(extra or {}),
            }
            # nsenter becomes the program: the process is the rank.
            self.ranks.append(Process(hosts.command(host, command), environment,
                                      patience_s=patience_s))

    def finish(self):
        """Waits for all of them."""
        for rank in self.ranks:
            rank.finish()
        return self

    def exit_statuses(self):
        return [rank.returncode for rank in self.ranks]

    def text(self):
        """What they have printed."""
        return "".join(
            f"--- rank {i}: {rank.returncode}\n{rank.stdout}{rank.stderr}"
            for i, rank in enumerate(self.ranks))

    def close(self):
        for rank in self.ranks:
            rank.kill()
            rank.close()
        self.ranks = []
