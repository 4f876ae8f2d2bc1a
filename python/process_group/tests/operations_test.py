"""Every operation of a process group gives what its definition says, for every type."""

import threading
import time
import unittest

import torch
import torch.distributed as dist
import torch.distributed.nn.functional

import group_ranks
import ringpipe.torch
from group_ranks import RANKS

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
INTEGERS = (torch.int32, torch.int64, torch.int8, torch.uint8)
TYPES = (*FLOATS, *INTEGERS, torch.bool)
OPERATIONS = (dist.ReduceOp.SUM, dist.ReduceOp.AVG, dist.ReduceOp.PRODUCT, dist.ReduceOp.MIN,
              dist.ReduceOp.MAX)
COUNT = 1000


def values(rank, kind, count=COUNT, seed=0):
    """What that rank has. Whole numbers of 0 to 3: all results are exact."""
    random = torch.Generator().manual_seed(100 * seed + rank)
    return torch.randint(0, 4, (count,), generator=random).to(kind)


def of_all(kind, count=COUNT, seed=0):
    return torch.stack([values(rank, kind, count, seed) for rank in range(dist.get_world_size())])


def reduced(inputs, operation):
    """Of `inputs`, over the first axis."""
    kind = inputs.dtype
    inputs = inputs.to(torch.int64 if kind in INTEGERS else torch.float64)
    if operation == dist.ReduceOp.SUM:
        result = inputs.sum(0)
    elif operation == dist.ReduceOp.AVG:
        result = inputs.sum(0).div(len(inputs), rounding_mode="trunc" if kind in INTEGERS else None)
    elif operation == dist.ReduceOp.PRODUCT:
        result = inputs.prod(0)
    else:
        result = inputs.amin(0) if operation == dist.ReduceOp.MIN else inputs.amax(0)
    return result.to(kind)


def expect(found, expected, what):
    assert found.dtype == expected.dtype, f"{what}: {found.dtype}"
    assert torch.equal(found, expected), f"{what}: {found} and not {expected}"


def each_reduction():
    for kind in TYPES:
        for operation in OPERATIONS:
            if kind != torch.bool or operation != dist.ReduceOp.AVG:
                yield kind, operation, f"{kind} {operation}"


# --- What each rank runs ------------------------------------------------------------------


def all_reduce():
    for kind, operation, what in each_reduction():
        x = values(dist.get_rank(), kind)
        dist.all_reduce(x, operation)
        expect(x, reduced(of_all(kind), operation), what)


def all_reduce_coalesced():
    counts = (3, 0, 700)
    for kind, operation, what in each_reduction():
        tensors = [values(dist.get_rank(), kind, count, seed) for seed, count in enumerate(counts)]
        dist.all_reduce_coalesced(tensors, operation)
        for seed, count in enumerate(counts):
            expect(tensors[seed], reduced(of_all(kind, count, seed), operation), what)


def broadcast():
    for kind in TYPES:
        for root in range(dist.get_world_size()):
            x = values(dist.get_rank(), kind)
            dist.broadcast(x, root)
            expect(x, values(root, kind), f"{kind} {root}")


def reduce():
    for kind, operation, what in each_reduction():
        for root in (0, 2):
            x = values(dist.get_rank(), kind)
            dist.reduce(x, root, operation)
            # On the others it stays: nobody said that it may be overwritten.
            expect(x, reduced(of_all(kind), operation) if dist.get_rank() == root
                   else values(dist.get_rank(), kind), f"{what} {root}")


def all_gather():
    size = dist.get_world_size()
    for kind in TYPES:
        outputs = [torch.empty(COUNT, dtype=kind) for _ in range(size)]
        dist.all_gather(outputs, values(dist.get_rank(), kind))
        expect(torch.stack(outputs), of_all(kind), kind)
        output = torch.empty(size * COUNT, dtype=kind)
        dist.all_gather_into_tensor(output, values(dist.get_rank(), kind))
        expect(output.view(size, -1), of_all(kind), kind)


def all_gather_of_uneven_parts():
    counts = (5, 0, 900, 1)
    outputs = [torch.empty(count) for count in counts]
    dist.all_gather(outputs, values(dist.get_rank(), torch.float32, counts[dist.get_rank()]))
    for rank, count in enumerate(counts):
        expect(outputs[rank], values(rank, torch.float32, count), rank)


def all_gather_coalesced():
    counts = (7, 300)
    for kind in TYPES:
        outputs = [[torch.empty(count, dtype=kind) for count in counts]
                   for _ in range(dist.get_world_size())]
        dist.all_gather_coalesced(outputs, [values(dist.get_rank(), kind, count, seed)
                                            for seed, count in enumerate(counts)])
        for rank, tensors in enumerate(outputs):
            for seed, count in enumerate(counts):
                expect(tensors[seed], values(rank, kind, count, seed), f"{kind} {rank}")


def gather():
    for kind in TYPES:
        for root in (0, 3):
            is_root = dist.get_rank() == root
            outputs = [torch.empty(COUNT, dtype=kind) for _ in range(4)] if is_root else None
            dist.gather(values(dist.get_rank(), kind), outputs, root)
            if is_root:
                expect(torch.stack(outputs), of_all(kind), kind)


def scatter():
    for kind in TYPES:
        for root in (0, 3):
            output = torch.empty(COUNT, dtype=kind)
            dist.scatter(output, list(of_all(kind)) if dist.get_rank() == root else None, root)
            expect(output, values(dist.get_rank(), kind), kind)


def reduce_scatter():
    rank, size = dist.get_rank(), dist.get_world_size()
    for kind, operation, what in each_reduction():
        expected = reduced(of_all(kind, size * 50), operation)[rank * 50:][:50]
        output = torch.empty(50, dtype=kind)
        dist.reduce_scatter(output, list(values(rank, kind, size * 50).split(50)), operation)
        expect(output, expected, what)
        output = torch.empty(50, dtype=kind)
        dist.reduce_scatter_tensor(output, values(rank, kind, size * 50), operation)
        expect(output, expected, what)
    parts = (4, 0, 30, 6)
    output = torch.empty(parts[rank])
    dist.reduce_scatter(output, list(values(rank, torch.float32, sum(parts)).split(parts)))
    expect(output, reduced(of_all(torch.float32, sum(parts)), dist.ReduceOp.SUM).split(parts)[rank],
           "uneven")


def all_to_all():
    rank, size = dist.get_rank(), dist.get_world_size()
    for kind in TYPES:
        expected = torch.cat([values(other, kind, size * 9).view(size, 9)[rank]
                              for other in range(size)])
        output = torch.empty(size * 9, dtype=kind)
        dist.all_to_all_single(output, values(rank, kind, size * 9))
        expect(output, expected, kind)
        outputs = [torch.empty(9, dtype=kind) for _ in range(size)]
        dist.all_to_all(outputs, list(values(rank, kind, size * 9).split(9)))
        expect(torch.cat(outputs), expected, kind)


def all_to_all_of_uneven_parts():
    """Rank r has r + 2 * s rows for rank s; a row has 3 elements."""
    rank, size = dist.get_rank(), dist.get_world_size()

    def splits(of):
        return [of + 2 * to for to in range(size)]

    def rows(of):
        return values(of, torch.float64, 3 * sum(splits(of))).view(-1, 3)
    expected = [rows(other).split(splits(other))[rank] for other in range(size)]
    output = torch.empty(sum(map(len, expected)), 3, dtype=torch.float64)
    dist.all_to_all_single(output, rows(rank), [len(part) for part in expected], splits(rank))
    expect(output, torch.cat(expected), "one tensor")
    outputs = [torch.empty_like(part) for part in expected]
    dist.all_to_all(outputs, list(rows(rank).split(splits(rank))))
    expect(torch.cat(outputs), torch.cat(expected), "lists")


def barriers():
    """Nobody leaves before the last one has come, who says so first."""
    group = dist.group.WORLD
    store = dist.distributed_c10d._get_default_store()
    for number, barrier in enumerate((dist.barrier,
                                      lambda: group.monitored_barrier(group_ranks.TIMEOUT))):
        if dist.get_rank() == 1:
            time.sleep(0.2)  # it is late
            store.add(f"rank 1 comes to {number}", 1)
        barrier()
        assert store.add(f"rank 1 comes to {number}", 0) == 1, number


def premultiplied_sums():
    for kind in FLOATS:
        for factor in (2.0, 0.5):
            x = values(dist.get_rank(), kind)
            given = factor if factor > 1 else [torch.tensor([factor])]
            dist.all_reduce(x, dist._make_nccl_premul_sum(given))
            expect(x, reduced(of_all(kind) * factor, dist.ReduceOp.SUM), f"{kind} {factor}")


def logical_operations():
    for operation, expected in ((dist.ReduceOp.BAND, dist.ReduceOp.MIN),
                                (dist.ReduceOp.BOR, dist.ReduceOp.MAX),
                                (dist.ReduceOp.SUM, dist.ReduceOp.MAX)):
        x = values(dist.get_rank(), torch.bool)
        dist.all_reduce(x, operation)
        expect(x, reduced(of_all(torch.bool), expected), operation)


def strides_of_ranks_may_differ():
    """What counts is where an element is in the tensor, not in memory."""
    rank = dist.get_rank()
    x = values(rank, torch.float32, 12).view(3, 4)
    inputs = (x, x.t().contiguous().t(), torch.stack([x, x], 2)[:, :, 1], x.flip(0).flip(0))
    given = inputs[rank].requires_grad_()
    dist.all_reduce(given)
    expect(given.detach(), reduced(of_all(torch.float32, 12), dist.ReduceOp.SUM).view(3, 4), "all")
    outputs = [torch.zeros(4, 3).t() for _ in range(4)]
    dist.all_gather(outputs, inputs[rank].detach() * 0 + rank)
    expect(torch.stack(outputs)[:, 1, 2], torch.arange(4.0), "all_gather")
    channels_last = torch.full((2, 3, 4, 5), float(rank)).to(memory_format=torch.channels_last)
    dist.broadcast(channels_last, 2)
    assert (channels_last == 2).all()
    assert channels_last.is_contiguous(memory_format=torch.channels_last)


def results_are_copied_back_in_inference_mode():
    """By whoever finishes the call: the pool's thread, or this one."""
    for asks_future in (True, False):
        with torch.inference_mode():
            x = values(dist.get_rank(), torch.float32, 12).view(3, 4).t()
            work = dist.all_reduce(x, async_op=True)
            (work.get_future() if asks_future else work).wait()
            expect(x, reduced(of_all(torch.float32, 12), dist.ReduceOp.SUM).view(3, 4).t(),
                   asks_future)


def all_to_all_where_one_rank_gives_no_splits():
    """Its parts are equally long, those of the others are not."""
    rank, size = dist.get_rank(), dist.get_world_size()
    splits = [2 if 0 in (rank, other) else rank + other for other in range(size)]
    x = torch.full((sum(splits),), float(rank))
    output = torch.empty_like(x)
    if rank == 0:
        dist.all_to_all_single(output, x)
    else:
        dist.all_to_all_single(output, x, splits, splits)
    expect(output, torch.cat([torch.full((splits[other],), float(other))
                              for other in range(size)]), "parts")


def empty_tensors():
    x = torch.empty(0)
    dist.all_reduce(x)
    dist.all_gather([torch.empty(0) for _ in range(4)], x)
    dist.all_to_all_single(torch.empty(0), torch.empty(0))
    dist.all_reduce_coalesced([torch.empty(0), torch.empty(0)])


def refusals():
    """None of them has begun a call, and the group goes on."""
    x = torch.ones(4)
    messages = []
    for call in (lambda: dist.all_reduce(x.to(torch.int16)),
                 lambda: dist.new_group().allreduce([x.to(torch.complex64)]),
                 lambda: dist.broadcast(x.to(torch.int16), 0),
                 lambda: dist.all_reduce(x, dist.ReduceOp.BAND),
                 lambda: dist.all_reduce(x.int(), dist.ReduceOp.BXOR),
                 lambda: dist.all_reduce(x.bool(), dist.ReduceOp.AVG),
                 lambda: dist.all_reduce(x.int(), dist._make_nccl_premul_sum(2.0)),
                 lambda: dist.all_reduce(x, dist._make_nccl_premul_sum(0.0)),
                 lambda: dist.all_reduce(x.to_sparse()),
                 lambda: dist.all_reduce_coalesced([x, x]),
                 lambda: dist.all_to_all_single(torch.ones(5), torch.ones(5)),
                 lambda: dist.all_to_all_single(x, x.clone(), [1, 1, 1, 1], [1, 1, 1]),
                 lambda: dist.all_gather_into_tensor(torch.ones(7), x),
                 lambda: dist.send(x, (dist.get_rank() + 1) % 4),
                 lambda: dist.recv(x, (dist.get_rank() + 1) % 4),
                 lambda: dist.recv(x),
                 lambda: dist.new_group(backend="ringpipe", pg_options=object())):
        try:
            call()
            messages.append("not refused")
        except (RuntimeError, ValueError) as error:
            messages.append(str(error).partition("\n")[0])
    dist.all_reduce(x)
    expect(x, torch.full((4,), 4.0), "afterwards")
    return messages


def mismatch():
    try:
        dist.all_reduce(torch.ones(4 + dist.get_rank() % 2))
    except RuntimeError as error:
        return str(error)
    return "no error"


def futures():
    """A callback has the result, and may make calls and wait for them."""
    x = torch.ones(1000)

    def then(future):
        y, = future.value()
        return dist.all_reduce(y, async_op=True).get_future().wait()[0]
    futures_ = [dist.all_reduce(x.clone(), async_op=True).get_future()]
    result = futures_[0].then(then).then(lambda future: future.value() + 1).wait()
    expect(result, torch.full((1000,), 17.0), "nested")
    # Callbacks that wait for a later call, from outside.
    works = [dist.all_reduce(torch.ones(1 << 18), async_op=True) for _ in range(5)]
    waiting = [work.get_future().then(lambda _, last=works[-1]: last.get_future().wait()[0][0])
               for work in works[:-1]]
    assert [future.wait() for future in waiting] == [4] * 4


def an_error_in_a_callback_reaches_who_waits():
    def fail(_):
        raise LookupError("in a callback")
    future = dist.all_reduce(torch.ones(3), async_op=True).get_future().then(fail)
    try:
        future.wait()
    except RuntimeError as error:
        return str(error)
    return "no error"


def in_order_of_issue():
    works, tensors = [], []
    for number in range(200):
        tensors.append(torch.full((1 + 37 * number,), float(number)))
        works.append(dist.all_reduce(tensors[-1], async_op=True))
    works[-1].wait()
    assert all(work.is_completed() and work.is_success() for work in works)
    for number, tensor in enumerate(tensors):
        expect(tensor, torch.full((1 + 37 * number,), 4.0 * number), number)


def dropped_works_keep_their_tensors():
    outputs = []
    for number in range(50):
        outputs.append([torch.zeros(1 << 14) for _ in range(4)])
        dist.all_gather(outputs[-1], torch.full((1 << 14,), float(number)), async_op=True)
    dist.barrier()
    for number, parts in enumerate(outputs):
        assert all((part == number).all() for part in parts), number


def groups_of_members_alone():
    rank = dist.get_rank()
    # torch has all ranks call it; the backend meets the members alone.
    group = dist.new_group([1, 3])
    other = dist.new_group([0, 2])
    x = torch.full((5,), float(rank))
    dist.all_reduce(x, group=group if rank % 2 else other)
    expect(x, torch.full((5,), 4.0 if rank % 2 else 2.0), "halves")
    halves = group if rank % 2 else other
    dist.broadcast(x.fill_(rank), 2 + rank % 2, group=halves)
    expect(x, torch.full((5,), 2.0 + rank % 2), "root by its number in the job")
    dist.destroy_process_group(halves)
    dist.all_reduce(x.fill_(1))
    expect(x, torch.full((5,), 4.0), "afterwards")


def profiles():
    with torch.profiler.profile(record_shapes=True) as profile:
        x = torch.ones(8)
        dist.all_reduce(x)
        dist.all_gather([torch.empty(8) for _ in range(4)], x)
        dist.barrier()
    return sorted({event.name for event in profile.events() if event.name.startswith("ringpipe:")})


def allocated():
    x = ringpipe.torch.allocate_like(torch.empty(3, 5, dtype=torch.float64))
    assert x.shape == (3, 5) and x.dtype == torch.float64 and not x.any()
    x += 1
    dist.all_reduce(x)
    expect(x, torch.full((3, 5), 4.0, dtype=torch.float64), "allocated")
    assert ringpipe.torch.allocate_like(torch.empty(0)).numel() == 0
    y = x.view(-1)[3:]
    del x
    dist.destroy_process_group()
    expect(y, torch.full((12,), 4.0, dtype=torch.float64), "after its group")
    y += 1
    dist.init_process_group("ringpipe", store=dist.HashStore(), rank=0, world_size=1)


def all_reduce_until_it_fails():
    while True:
        try:
            dist.all_reduce(torch.ones(8))
        except RuntimeError as error:
            return str(error)


def without_a_group_again():
    """For who destroyed it: the test's own end destroys one, too."""
    dist.init_process_group("ringpipe", store=dist.HashStore(), rank=0, world_size=1)
    return "left"


def memory_outlives_its_group():
    """Rank 0 leaves all the same: the others hear of it at once."""
    if dist.get_rank() != 0:
        return all_reduce_until_it_fails()
    x = ringpipe.torch.allocate_like(torch.empty(1000))
    dist.all_reduce(torch.ones(8))
    dist.destroy_process_group()
    assert not x.any()
    return without_a_group_again()


def a_callback_outlasts_its_group():
    """That is no reason to end the calls of others."""
    if dist.get_rank() != 0:
        return all_reduce_until_it_fails()
    future = dist.all_reduce(torch.ones(8), async_op=True).get_future()
    began = threading.Event()
    future.then(lambda _: (began.set(), time.sleep(3)))
    assert began.wait(group_ranks.PATIENCE_S)
    dist.destroy_process_group()
    return without_a_group_again()


def differentiable_functions():
    rank = dist.get_rank()
    x = torch.full((4,), rank + 1.0, requires_grad=True)
    dist.nn.functional.all_reduce(x * x).sum().backward()
    expect(x.grad, torch.full((4,), 4 * 2 * (rank + 1.0)), "all_reduce")
    x = torch.full((2,), rank + 1.0, requires_grad=True)
    gathered = dist.nn.functional.all_gather(x)
    (gathered[0] * 3 + gathered[3]).sum().backward()
    expect(x.grad, torch.full((2,), {0: 12.0, 3: 4.0}.get(rank, 0.0)), "all_gather")
    x = torch.arange(4.0, requires_grad=True)
    output = dist.nn.functional.all_to_all_single(torch.empty(4), x)
    (output * (rank + 1)).sum().backward()
    expect(x.grad, torch.arange(1.0, 5.0), "all_to_all")


def version_counters_do_not_change():
    x = torch.ones(3)
    before = x._version
    dist.all_reduce(x)
    return x._version - before


class OperationsTest(unittest.TestCase):

    def test_refusals_say_what_to_do_and_the_group_goes_on(self):
        words = ("no type Short", "no type ComplexFloat", "no type Short",
                 "no ReduceOp.BAND", "no ReduceOp.BXOR", "bool by ReduceOp.AVG",
                 "PREMUL_SUM for floating-point types", "cannot multiply by 0", "sparse",
                 "overlap", "5 rows cannot be split equally between 4 ranks",
                 "do not split 4 rows", "has 7 elements, and the parts together 16",
                 "no send yet: messages between two ranks come with a later version",
                 "no recv yet", "no recv from any source yet", "leave pg_options out")
        for messages in group_ranks.run(refusals):
            self.assertEqual(len(messages), len(words))
            for message, word in zip(messages, words):
                self.assertIn(word, message)

    def test_ranks_that_disagree_are_told_both_calls(self):
        for message in group_ranks.run(mismatch):
            self.assertIn("mismatch", message)
            self.assertIn("count 4", message)
            self.assertIn("count 5", message)

    def test_an_error_in_a_callback_reaches_who_waits(self):
        for message in group_ranks.run(an_error_in_a_callback_reaches_who_waits):
            self.assertIn("LookupError: in a callback", message)

    def test_what_needs_a_group_says_so(self):
        for call in (ringpipe.torch.lost_ranks,
                     lambda: ringpipe.torch.allocate_like(torch.ones(3))):
            with self.assertRaisesRegex(RuntimeError, "init_process_group"):
                call()

    def test_a_rank_that_leaves_is_said_to(self):
        for function in (memory_outlives_its_group, a_callback_outlasts_its_group):
            with self.subTest(function.__name__):
                left, *others = group_ranks.run(function)
                self.assertEqual(left, "left")
                for message in others:
                    self.assertRegex(message, r"rank 0 .* has destroyed its communicator")

    def test_profiles_name_the_operations(self):
        for names in group_ranks.run(profiles):
            self.assertEqual(names, ["ringpipe:all_gather", "ringpipe:all_reduce",
                                     "ringpipe:barrier"])

    def test_version_counters_do_not_change(self):
        self.assertEqual(group_ranks.run(version_counters_do_not_change), [0] * RANKS)


def _add_test(function):
    def test(_self):
        group_ranks.run(function)
    setattr(OperationsTest, f"test_{function.__name__}", test)


for _function in (all_reduce, all_reduce_coalesced, broadcast, reduce, all_gather,
                  all_gather_of_uneven_parts, all_gather_coalesced, gather, scatter,
                  reduce_scatter, all_to_all, all_to_all_of_uneven_parts, barriers,
                  all_to_all_where_one_rank_gives_no_splits,
                  results_are_copied_back_in_inference_mode,
                  premultiplied_sums, logical_operations, strides_of_ranks_may_differ,
                  empty_tensors, futures, in_order_of_issue, dropped_works_keep_their_tensors,
                  groups_of_members_alone, allocated,
                  differentiable_functions):
    _add_test(_function)


if __name__ == "__main__":
    unittest.main()
