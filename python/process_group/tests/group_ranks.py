"""Ranks of a test: forked, so that none has to import torch, and bounded in time."""

import contextlib
import datetime
import multiprocessing
import os
import socket
import sys
import tempfile
import time
import traceback

import torch
import torch.distributed

import ringpipe.torch  # pylint: disable=unused-import
from tests.launch import job

RANKS = 4
# Of a call, and of a group's creation.
TIMEOUT = datetime.timedelta(seconds=30)
PATIENCE_S = 100


def join(path, rank, size, backend="ringpipe"):
    """Makes this process that rank of the default group."""
    torch.set_num_threads(1)
    torch.distributed.init_process_group(backend, init_method=f"file://{path}", rank=rank,
                                         world_size=size, timeout=TIMEOUT)


def _rank(function, path, rank, size, arguments, pipe):
    try:
        join(path, rank, size)
        result = function(*arguments)
        torch.distributed.destroy_process_group()
        pipe.send((True, result))
    except BaseException:  # pylint: disable=broad-exception-caught
        pipe.send((False, traceback.format_exc()))
        raise


class Failed(AssertionError):
    """A rank raised an exception; this has all of them."""


def run(function, *arguments, size=RANKS):
    """Returns what the ranks return from function(*arguments), by rank."""
    context = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        ranks = []
        for rank in range(size):
            here, there = context.Pipe(duplex=False)
            process = context.Process(target=_rank, args=(
                function, f"{folder}/store", rank, size, arguments, there))
            process.start()
            there.close()
            stack.callback(process.close)
            stack.callback(process.join)
            stack.callback(process.kill)
            ranks.append((process, here))
        results = _results(ranks)
    failures = [f"rank {rank}: {result}" for rank, (fine, result) in enumerate(results) if not fine]
    if failures:
        raise Failed("\n".join(failures))
    return [result for _, result in results]


def _results(ranks):
    deadline = time.monotonic() + PATIENCE_S
    results = []
    for process, pipe in ranks:
        if not pipe.poll(max(0, deadline - time.monotonic())):
            results.append((False, f"no answer in {PATIENCE_S} s"))
            continue
        try:
            results.append(pipe.recv())
        except EOFError:
            process.join()
            results.append((False, f"ended with {process.exitcode}"))
    for rank, (process, _) in enumerate(ranks):
        process.join(max(0, deadline - time.monotonic()))
        if process.exitcode is None:
            results[rank] = (False, "it does not end")
    return results


def start(test, script, role, size=RANKS, **variables):
    """Starts `script ROLE` as processes of their own, which find each other by
    torch's env://; ends them with the test. Nobody else looks after them."""
    port = free_port()
    test.addCleanup(job.kill_descendants)
    ranks = []
    for rank in range(size):
        environment = {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(size),
                       "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
                       "OMP_NUM_THREADS": "1", **variables}
        ranks.append(job.Process([sys.executable, "-X", "faulthandler", script, role],
                                 environment, patience_s=PATIENCE_S))
        test.addCleanup(ranks[-1].close)
        test.addCleanup(ranks[-1].kill)
    return ranks


def free_port():
    """A port that nobody listens at now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]
