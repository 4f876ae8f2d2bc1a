"""The peers of compare_peers: each a library with settings, under one name.

A name is a library and what is set, joined by "+": "openmpi",
"openmpi-ucx+alg6+pinned+huge+malloc", "gloo-allreduce_ring+huge". Nothing here
starts a program.
"""

import argparse
import collections
import re

# Beside this file.
from comparison import AS_ROOT

MPI = ["openmpi", "openmpi-ucx", "ring", "ring-ucx", "mpich"]
GLOO = ["gloo-allreduce_ring", "gloo-allreduce_bcube", "gloo-ring",
        "gloo-ring_chunked", "gloo-halving_doubling"]
# "alg" and a number: Open MPI's, of an allreduce.
WORDS = {
    "algN": "Open MPI's allreduce algorithm N, 1 to 6 (openmpi, openmpi-ucx)",
    "poll": "the caller polls (gloo's classic algorithms)",
    "pinned": "rank r runs on core r modulo the number of cores",
    "huge": "huge pages, for the buffers and for what malloc returns",
    "page": "buffers begin with a page; else 16 bytes past one, as malloc's do",
    "malloc": "malloc keeps its memory, so that it is not cleared again and "
              "again",
}
ALLREDUCE = "allreduce"
# The name of a library in the picture, by the beginning of a peer's name, in
# the picture's order.
LIBRARIES = {
    "openmpi": "Open MPI", "openmpi-ucx": "Open MPI over UCX", "mpich": "MPICH",
    "gloo": "gloo (TCP)", "ring": "plain ring over MPI",
    "ring-ucx": "plain ring over MPI",
}
MALLOC = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": "17179869184",
          "MALLOC_TOP_PAD_": "67108864"}
HUGE = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
UCX_ENVIRONMENT = {"UCX_TLS": "posix,sysv,cma,self"}
# Debian's Open MPI has UCX, and leaves it out by default.
UCX_ARGUMENTS = ["--mca", "pml", "ucx", "--mca", "osc", "ucx", "--mca",
                 "pml_ucx_tls", "any", "--mca", "pml_ucx_devices", "any"]

# `base`: without the words; `words`: a set of those that follow.
Setting = collections.namedtuple("Setting", "name base words")


def parse_setting(name):
    """Raises argparse.ArgumentTypeError where there is no such peer."""
    base, *words = name.split("+")
    allowed = {"pinned", "huge", "page", "malloc"}
    if base in ("openmpi", "openmpi-ucx"):
        allowed |= {f"alg{number}" for number in range(1, 7)}
    if base.startswith("gloo-") and not base.startswith("gloo-allreduce"):
        allowed |= {"poll"}
    if (base not in MPI + GLOO or not allowed.issuperset(words) or
            len(set(words)) < len(words) or
            sum(word.startswith("alg") for word in words) > 1):
        raise argparse.ArgumentTypeError(
            f"no peer {name}; there are {', '.join(MPI + GLOO)}, and for "
            f"{base} these words: {', '.join(sorted(allowed))}")
    return Setting(name, base, frozenset(words))


def library_of(name):
    """Of a peer's name; None where there is no such library."""
    base = name.split("+")[0]
    return LIBRARIES.get(base) or LIBRARIES.get(base.split("-")[0])


def program_of(setting):
    """The program in bazel-bin/bench, and what of Debian it needs."""
    if setting.base in GLOO:
        return "gloo_allreduce", "libgloo-dev"
    if setting.base == "mpich":
        return "mpi_allreduce_mpich", "libmpich-dev"
    return "mpi_allreduce", "libopenmpi-dev"


def launcher_of(setting):
    """The beginning of the command line, or nothing."""
    if setting.base in GLOO:
        return []
    if setting.base == "mpich":
        return ["mpirun.mpich"] + (
            ["-bind-to", "none"] if "pinned" in setting.words else [])
    command = ["mpirun.openmpi", "--oversubscribe"]
    if "pinned" in setting.words:  # by the program itself
        command += ["--bind-to", "none"]
    if setting.base.endswith("-ucx"):
        command += UCX_ARGUMENTS
    for word in setting.words:
        if match := re.fullmatch(r"alg(\d)", word):
            command += ["--mca", "coll_tuned_use_dynamic_rules", "1", "--mca",
                        "coll_tuned_allreduce_algorithm", match[1]]
    return command


def command_of(setting, program, ranks, size, warmups, iterations, touch,
               collective=ALLREDUCE):
    """(the whole command, what its environment needs). Only MPI's libraries
    have another collective than the allreduce."""
    words = [word for word in ("pinned", "huge") if word in setting.words]
    words += ["align=0"] if "page" in setting.words else []
    words += ["touch"] if touch else []
    words += ([f"collective={collective}"] if collective != ALLREDUCE else [])
    environment = {}
    if "malloc" in setting.words:
        environment.update(MALLOC)
    if "huge" in setting.words:
        environment.update(HUGE)
    if setting.base in GLOO:
        algorithm = setting.base[len("gloo-"):]
        if "poll" in setting.words:
            algorithm += "+poll"
        return [program, ranks, size, warmups, iterations, algorithm, "tcp", 0,
                *words], environment
    environment.update(AS_ROOT)
    if setting.base.endswith("-ucx"):
        environment.update(UCX_ENVIRONMENT)
    if setting.base.startswith("ring"):
        words = ["ring", *words]
    return [*launcher_of(setting), "-n", ranks, program, size, warmups,
            iterations, *words], environment


def default_names(ranks, size, cores, collective=ALLREDUCE):
    """The peers that are measured where none is named: those that were the best
    somewhere near, Open MPI's defaults, and one or two settings of each other
    library: a dozen, of hundreds."""
    oversubscribed = ranks > cores
    if collective != ALLREDUCE:
        return (["openmpi", "openmpi+pinned", "openmpi-ucx",
                 "openmpi-ucx+pinned"] + ([] if oversubscribed else ["mpich"]))
    if size < 32 << 10:
        names = ["openmpi", "openmpi+pinned", "openmpi-ucx+pinned",
                 "ring+pinned"]
        names += (["openmpi+alg1+pinned", "openmpi+alg6+pinned"] if oversubscribed
                  else ["openmpi-ucx"])
    elif size < 4 << 20:
        names = ["openmpi", "openmpi-ucx", "openmpi-ucx+pinned",
                 "openmpi-ucx+alg4+pinned", "openmpi-ucx+alg6+pinned",
                 "ring-ucx+pinned"]
        names += (["openmpi+alg1+pinned", "openmpi+alg6+pinned"] if oversubscribed
                  else [])
    else:
        names = ["openmpi", "openmpi+pinned+huge+malloc",
                 "openmpi-ucx+alg6+malloc",
                 "openmpi-ucx+alg6+pinned+huge+malloc",
                 "ring+pinned+huge+malloc", "ring-ucx+pinned+huge+malloc",
                 "gloo-allreduce_ring+huge+malloc"]
    if size < 4 << 20:
        names += ["gloo-allreduce_ring", "gloo-halving_doubling"]
    return names + ([] if oversubscribed else ["mpich"])


def left_out_by_default(ranks, cores):
    """{peer with so many ranks: why default_names has it not}."""
    if ranks <= cores:
        return {}
    return {f"mpich with {ranks} ranks":
            "with more ranks than cores it takes tens of times as long, since it "
            "waits without yielding: --peer mpich measures it"}
