"""However a rank ends, the others get an error that names it, in time, and nothing is
left behind."""

import faulthandler
import os
import re
import signal
import subprocess
import sys
import time
import unittest

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d
from torch.nn.parallel import DistributedDataParallel

import group_ranks
import ringpipe.torch
from group_ranks import RANKS
from python.tests.waiting import until_it_sleeps
from tests.launch import job

LOST_S = 2
# Ctrl-C comes within 0.1 s; an exit waits for others for 2 s.
ENDS_S = 4


# --- What a rank runs ----------------------------------------------------------------------


def step_of(model, optimizer):
    optimizer.zero_grad()
    model(torch.ones(4, 64)).sum().backward()
    optimizer.step()


def say_who_is_lost(call):
    """Makes the call until it fails."""
    while True:
        try:
            call()
        except RuntimeError as error:
            print(f"lost {ringpipe.torch.lost_ranks()}: {type(error).__name__}: "
                  f"{str(error).partition(chr(10))[0]}", flush=True)
            return


def train_until_lost(raising_rank=-1):
    model = DistributedDataParallel(torch.nn.Linear(64, 64))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    step_of(model, optimizer)
    print("trains", flush=True)
    if dist.get_rank() == raising_rank:
        raise LookupError(f"the exception of rank {raising_rank}")
    say_who_is_lost(lambda: step_of(model, optimizer))


def in_a_group_of_two():
    """Ranks 1 and 3 of the job are 0 and 1 of a group."""
    group = dist.new_group([1, 3])
    dist.barrier()
    print("trains", flush=True)
    if dist.get_rank() == 3:
        signal.pause()
    if dist.get_rank() == 1:
        say_who_is_lost(lambda: dist.barrier(group=group))
        print("group", ringpipe.torch.lost_ranks(group), flush=True)
    os._exit(0)


def one_raises():
    train_until_lost(2)


def one_waits():
    """Rank 1 is in a call into which the others do not come."""
    stat = stat_of_rank_1()
    if dist.get_rank() == 1:
        work = dist.all_reduce(torch.ones(1000), async_op=True)
        print("waits", flush=True)
        work.wait()
    until_it_has_ended(stat)


def one_calls_in_a_handler():
    """Rank 1 makes a call while it waits for another, for which the others are late."""
    works = []
    y = torch.full((1 << 16,), dist.get_rank() + 1.0)

    def handle(*_):
        works.append(dist.all_reduce(y, async_op=True))
        try:
            works[0].wait()
        except RuntimeError as error:
            print("refused:", str(error).partition("\n")[0], flush=True)
    if dist.get_rank() == 1:
        signal.signal(signal.SIGUSR1, handle)
    else:
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    dist.barrier()
    print("ready", flush=True)
    x = y.clone()
    if dist.get_rank() != 1:
        signal.sigwait([signal.SIGUSR1])
    work = dist.all_reduce(x, async_op=True)
    print("waits", flush=True)
    work.wait()
    if dist.get_rank() != 1:
        works.append(dist.all_reduce(y, async_op=True))
    works[0].wait()
    print("sums", x.unique().tolist(), y.unique().tolist(), flush=True)
    dist.destroy_process_group()


def leave_without_destroying():
    for _ in range(10):
        work = dist.all_reduce(torch.ones(1 << 16), async_op=True)
        work.get_future().then(lambda future: future.value())
    work.wait()
    sys.exit(7)


def leave_in_a_call():
    """The others come into the call of rank 1 when it has left. Its future has a
    callback."""
    stat = stat_of_rank_1()
    if dist.get_rank() == 1:
        dist.all_reduce(torch.ones(5), async_op=True).get_future().then(print)
        return
    until_it_has_ended(stat)
    say_who_is_lost(lambda: dist.all_reduce(torch.ones(5)))


def stat_of_rank_1():
    """Its file of /proc. By the store, and not by a call, which the end of rank 1 may end:
    it goes on when the others have the file."""
    store = distributed_c10d._get_default_store()  # pylint: disable=protected-access
    if dist.get_rank() == 1:
        store.set("pid", str(os.getpid()))
        while store.add("has the file", 0) < RANKS - 1:
            time.sleep(0.01)
        return None
    # pylint: disable-next=consider-using-with
    stat = open(f"/proc/{int(store.get('pid'))}/stat", encoding="utf-8")
    store.add("has the file", 1)
    return stat


def until_it_has_ended(stat):
    with stat:
        deadline = time.monotonic() + group_ranks.PATIENCE_S
        while state_in(stat) not in "ZX" and time.monotonic() < deadline:
            time.sleep(0.01)


def state_in(stat):
    """The state of a process; X if there is none any more."""
    try:
        stat.seek(0)
        return stat.read().rpartition(") ")[2][0]
    except ProcessLookupError:
        return "X"


def leave_with_memory():
    global tensor  # pylint: disable=global-variable-undefined
    tensor = ringpipe.torch.allocate_like(torch.ones(1000))
    tensor += 1
    dist.all_reduce(tensor)


def in_a_child_of_fork():
    """The child's calls say so; it may end as it likes."""
    pid = os.fork()
    if pid == 0:
        faulthandler.dump_traceback_later(20, exit=True)  # should it hang
        try:
            dist.all_reduce(torch.ones(3))
        except RuntimeError as error:
            print(str(error).partition("\n")[0], flush=True)
        dist.destroy_process_group()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    x = torch.ones(3)
    dist.all_reduce(x)
    print("sum", x[0].item(), flush=True)
    dist.destroy_process_group()


ROLES = (train_until_lost, in_a_group_of_two, one_raises, one_waits,
         one_calls_in_a_handler,
         leave_without_destroying, leave_in_a_call, leave_with_memory, in_a_child_of_fork)


class FailuresTest(unittest.TestCase):

    def start(self, role):
        return group_ranks.start(self, __file__, role.__name__)

    def finish(self, ranks, statuses):
        """That they end so, without a crash, and leave nothing."""
        for rank in ranks:
            rank.finish()
        everything = "".join(rank.stdout + rank.stderr for rank in ranks)
        self.assertEqual([rank.returncode for rank in ranks], statuses, everything)
        for rank in ranks:
            for text in ("Fatal Python error", "terminate called", "Segmentation"):
                self.assertNotIn(text, rank.stderr)
        self.assertEqual(job.lasting_descendants(LOST_S), {})

    def check_lost(self, ranks, lost, began_s):
        """Each is told so in time, by its next call."""
        for rank in ranks:
            told = rank.wait_for(r"lost \((.*)\): RuntimeError: (.*)\n")
            self.assertIn(str(lost), re.findall(r"\d+", told[1]), told[2])
            self.assertIn(f"rank {lost}", told[2])
            self.assertLess(time.monotonic() - began_s, job.liveness_bound_s(LOST_S))

    def test_a_rank_is_killed_in_training(self):
        for victim in (0, 2):
            with self.subTest(victim=victim):
                ranks = self.start(train_until_lost)
                for rank in ranks:
                    rank.wait_for("trains")
                os.kill(ranks[victim].pid, signal.SIGKILL)
                killed_s = time.monotonic()
                others = [rank for number, rank in enumerate(ranks) if number != victim]
                self.check_lost(others, victim, killed_s)
                self.finish(ranks, [-signal.SIGKILL if number == victim else 0
                                    for number in range(RANKS)])

    def test_a_rank_of_a_group_is_named_by_its_number_in_the_job(self):
        ranks = self.start(in_a_group_of_two)
        for rank in ranks:
            rank.wait_for("trains")
        os.kill(ranks[3].pid, signal.SIGKILL)
        told = ranks[1].wait_for(r"lost .*: RuntimeError: (.*)\n")
        self.assertIn("rank 1", told[1])
        self.assertIn("which has ranks 1, 3 of the job", told[1])
        self.assertEqual(ranks[1].wait_for(r"group (.*)\n")[1], "(3,)")
        self.finish(ranks, [0, 0, 0, -signal.SIGKILL])

    def test_an_exception_in_one_rank(self):
        ranks = self.start(one_raises)
        ranks[2].finish()
        self.assertIn("LookupError: the exception of rank 2", ranks[2].stderr)
        self.check_lost([ranks[0], ranks[1], ranks[3]], 2, time.monotonic())
        self.finish(ranks, [0, 0, 1, 0])

    def test_ctrl_c_for_one_that_waits(self):
        ranks = self.start(one_waits)
        ranks[1].wait_for("waits")
        until_it_sleeps(ranks[1].pid, ranks[1].pid)
        os.kill(ranks[1].pid, signal.SIGINT)
        began = time.monotonic()
        ranks[1].finish()
        self.assertLess(time.monotonic() - began, job.liveness_bound_s(ENDS_S))
        self.assertIn("KeyboardInterrupt", ranks[1].stderr)
        self.finish(ranks, [0, -signal.SIGINT, 0, 0])

    def test_a_call_in_a_signal_handler(self):
        """Its wait is refused; the call for which its thread waits goes on."""
        ranks = self.start(one_calls_in_a_handler)
        for rank in ranks:
            rank.wait_for("ready")
        ranks[1].wait_for("waits")
        until_it_sleeps(ranks[1].pid, ranks[1].pid)
        os.kill(ranks[1].pid, signal.SIGUSR1)
        ranks[1].wait_for("refused: .*while_waiting")
        for rank in (ranks[0], *ranks[2:]):
            os.kill(rank.pid, signal.SIGUSR1)
        self.finish(ranks, [0] * RANKS)
        for rank in ranks:
            self.assertIn("sums [10.0] [10.0]", rank.stdout)

    def test_ctrl_c_for_all(self):
        ranks = self.start(train_until_lost)
        for rank in ranks:
            rank.wait_for("trains")
        for rank in ranks:
            os.kill(rank.pid, signal.SIGINT)
        began = time.monotonic()
        for rank in ranks:
            rank.finish()
            self.assertLess(time.monotonic() - began, job.liveness_bound_s(ENDS_S))
            # An interrupt, or that another rank left because of one.
            self.assertIn(rank.returncode, (0, 1, -signal.SIGINT), rank.stderr)
            self.assertNotIn("Fatal Python error", rank.stderr)
        self.assertEqual(job.lasting_descendants(LOST_S), {})

    def test_an_exit_without_destroy_process_group(self):
        self.finish(self.start(leave_without_destroying), [7] * RANKS)

    def test_an_exit_in_a_call(self):
        ranks = self.start(leave_in_a_call)
        ranks[1].finish()
        for rank in (ranks[0], ranks[2], ranks[3]):
            rank.wait_for(r"lost .*: RuntimeError: .*rank 1 aborted .* was destroyed while a call")
        self.finish(ranks, [0] * RANKS)

    def test_an_exit_with_memory_that_was_allocated(self):
        self.finish(self.start(leave_with_memory), [0] * RANKS)

    def test_a_child_of_fork_cannot_use_its_parents_group(self):
        ranks = self.start(in_a_child_of_fork)
        self.finish(ranks, [0] * RANKS)
        for rank in ranks:
            self.assertIn("this process is a child of it", rank.stdout)
            self.assertIn("sum 4.0", rank.stdout)

    def test_an_exception_in_one_rank_under_torchrun(self):
        self.addCleanup(job.kill_descendants)
        launched = subprocess.run(
            ["torchrun", "--nproc_per_node", str(RANKS), "-r", "1", "-t", "1", "--master_port",
             str(group_ranks.free_port()), __file__, "one_raises"],
            env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True,
            timeout=group_ranks.PATIENCE_S, check=False)
        self.assertNotEqual(launched.returncode, 0)
        self.assertIn("the exception of rank 2", launched.stderr)
        self.assertEqual(job.lasting_descendants(LOST_S), {})


if __name__ == "__main__":
    if len(sys.argv) == 2 and sys.argv[1] in [role.__name__ for role in ROLES]:
        torch.set_num_threads(1)
        dist.init_process_group("ringpipe", timeout=group_ranks.TIMEOUT)
        globals()[sys.argv[1]]()
    else:
        job.adopt_orphans()
        unittest.main()
