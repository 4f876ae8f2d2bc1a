"""Bandwidth and latency of the software device, by Debian's perftest.

    bazel run //bench:perftest_table
    bazel run //bench:perftest_table -- --hosts
    bazel run //bench:perftest_table -- --other probe=DIRECTORY

Prints a table of write, send and read at several sizes: on one host, or with
--hosts between two network namespaces on this machine (as root). With --other
NAME=DIRECTORY it measures another libibverbs.so.1, which lies in DIRECTORY, as
well: round by round in turns, so that what else the machine does hits both, and
prints the ratio of the medians.
"""

import argparse
import os
import statistics
import sys

from bench import perftest
from tests.hosts.hosts import Hosts

OPERATIONS = ("write", "send", "read")
SIZES = (8, 4096, 65536, 1 << 20)
PATIENCE_S = 120


def iterations(kind, size, hosts):
    if kind == "lat":
        return 2000 if size <= 65536 else 500
    bytes_in_all = (64 << 20) if hosts else (1 << 30)
    return max(500, min(20000, bytes_in_all // size))


class Host:
    """Where a program runs: its address, and how it is started there."""

    def __init__(self, address, prefix):
        self.address = address
        self.prefix = prefix


def one_host():
    return Host("127.0.0.1", lambda command: command)


def measure(directory, operation, kind, size, server_host, client_host, port,
            hosts):
    """MiB/s or microseconds."""
    command = [f"ib_{operation}_{kind}", "-d", "soft0", "-x", "0", "-F", "-p",
               str(port), "-s", str(size), "-n",
               str(iterations(kind, size, hosts))]
    environment = dict(os.environ, LD_LIBRARY_PATH=directory,
                       RINGPIPE_SECRET="of this measurement")
    fields = perftest.run_pair(
        server_host.prefix(command),
        client_host.prefix(command + [server_host.address]), port, environment,
        PATIENCE_S)
    return fields[4] if kind == "lat" else fields[3]


def measure_all(libraries, rounds, server_host, client_host, hosts):
    """{(kind, operation, size): {library: [figure of each round]}}"""
    port = 18515
    figures = {}
    for kind in ("bw", "lat"):
        for operation in OPERATIONS:
            for size in SIZES:
                row = figures[kind, operation, size] = {
                    name: [] for name in libraries}
                for _ in range(rounds):
                    for name, directory in libraries.items():
                        port += 1
                        row[name].append(measure(
                            directory, operation, kind, size, server_host,
                            client_host, port, hosts))
                print(".", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return figures


def size_text(size):
    for unit, factor in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size % factor == 0:
            return f"{size // factor} {unit}"
    return f"{size} B"


def cell(kind, row):
    medians = [statistics.median(values) for values in row.values()]
    text = f"{medians[0]:,.2f}" if kind == "lat" else f"{medians[0]:,.0f}"
    if len(medians) > 1:
        text += f" ({medians[0] / medians[1]:.2f})"
    return text


def print_table(figures, names):
    for kind, title in (("bw", "MiB/s"), ("lat", "µs, typical")):
        if len(names) > 1:
            title += f" (ratio to {names[1]})"
        print(f"\n| {title} | " + " | ".join(map(size_text, SIZES)) + " |")
        print("| --- |" + " ---: |" * len(SIZES))
        for operation in OPERATIONS:
            print(f"| {operation} | " + " | ".join(
                cell(kind, figures[kind, operation, size]) for size in SIZES)
                  + " |")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    # Its names, all in one directory; from the BUILD file.
    parser.add_argument("library", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--hosts", action="store_true",
                        help="between two network namespaces")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--other", metavar="NAME=DIRECTORY")
    arguments = parser.parse_args()
    libraries = {"ringpipe": os.path.dirname(os.path.abspath(arguments.library[0]))}
    if arguments.other:
        name, _, directory = arguments.other.partition("=")
        libraries[name] = os.path.abspath(directory)
    if arguments.hosts:
        with Hosts(2) as hosts:
            ends = [Host(hosts.address(i),
                         lambda command, i=i: hosts.command(i, command))
                    for i in range(2)]
            figures = measure_all(libraries, arguments.rounds, *ends, True)
    else:
        figures = measure_all(libraries, arguments.rounds, one_host(),
                              one_host(), False)
    print_table(figures, list(libraries))


if __name__ == "__main__":
    main()
