"""DistributedDataParallel over ringpipe trains four ranks as one process trains on their
joint batch."""

import contextlib
import functools
import unittest

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

import group_ranks
from group_ranks import RANKS

STEPS = 200
BATCH = 8  # of a rank
RELATIVE = 1e-9


def network(kind):
    """Of 3.4 MiB in float64: three buckets of 1 MiB. Without BatchNorm, whose statistics
    are a rank's own."""
    torch.manual_seed(1)
    return torch.nn.Sequential(
        torch.nn.Conv2d(1, 8, 3, padding=1), torch.nn.ReLU(),
        torch.nn.Conv2d(8, 16, 3, stride=2, padding=1), torch.nn.ReLU(), torch.nn.Flatten(),
        torch.nn.Linear(16 * 16, 512), torch.nn.ReLU(), torch.nn.Linear(512, 512),
        torch.nn.Tanh(), torch.nn.Linear(512, 10)).to(kind)


class Examples(Dataset):
    """Made of their numbers: noise, and a bright column whose place is the class."""

    def __len__(self):
        return STEPS * BATCH * RANKS

    def __getitem__(self, number):
        random = torch.Generator().manual_seed(number)
        x = torch.randn(1, 8, 8, generator=random, dtype=torch.float64)
        x[0, :, number % 8] += 2
        return x, number % 8


def batch(step, kind, ranks=range(RANKS)):
    """What these ranks have at that step: every RANKS-th example, as DistributedSampler
    deals them out."""
    examples = Examples()
    first = step * BATCH * RANKS
    chosen = [examples[first + i] for rank in ranks for i in range(rank, BATCH * RANKS, RANKS)]
    return torch.stack([x for x, _ in chosen]).to(kind), torch.tensor([y for _, y in chosen])


def optimizer_of(model):
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.5)


def loss_of(model, x, y):
    return torch.nn.functional.cross_entropy(model(x), y)


def parameters_of(model):
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


# --- What each rank runs ------------------------------------------------------------------


def alone(kind):
    """One process on whole batches: its parameters and its last loss."""
    model = network(kind)
    optimizer = optimizer_of(model)
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of(model, *batch(step, kind))
        loss.backward()
        optimizer.step()
    return parameters_of(model).numpy(), loss.item()


def batches_of(loader, kind):
    if loader:
        # Its workers are forked from a process that has a group.
        sampler = DistributedSampler(Examples(), shuffle=False)
        for x, y in DataLoader(Examples(), BATCH, sampler=sampler, num_workers=2,
                               multiprocessing_context="fork", timeout=60):
            yield x.to(kind), y
    else:
        for step in range(STEPS):
            yield batch(step, kind, [dist.get_rank()])


def train(kind, hook=None, loader=False, halves=False, **options):
    model = DistributedDataParallel(network(kind), **options)
    if hook == "fp16":
        model.register_comm_hook(None, default_hooks.fp16_compress_hook)
    elif hook == "powerSGD":
        state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=4,
                                            start_powerSGD_iter=10)
        model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    optimizer = optimizer_of(model)
    for x, y in batches_of(loader, kind):
        optimizer.zero_grad()
        for part in range(2) if halves else (slice(None),):
            # The gradients of the first half stay here until the second's are exchanged.
            part = slice(part * BATCH // 2, (part + 1) * BATCH // 2) if halves else part
            with model.no_sync() if halves and part.start == 0 else contextlib.nullcontext():
                loss = loss_of(model, x[part], y[part]) / (2 if halves else 1)
                loss.backward()
        optimizer.step()
    whole = loss.detach() * (2 if halves else 1)
    dist.all_reduce(whole, dist.ReduceOp.AVG)
    return parameters_of(model).numpy(), whole.item()


class TrainingTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.alone = {kind: group_ranks.run(alone, kind, size=1)[0]
                     for kind in (torch.float64, torch.float32)}

    def run_ranks(self, kind, **options):
        results = group_ranks.run(functools.partial(train, kind, **options))
        for parameters, _ in results:
            self.assertEqual(parameters.tobytes(), results[0][0].tobytes())
        return results[0]

    def check_float64(self, **options):
        parameters, _ = self.run_ranks(torch.float64, **options)
        expected, _ = self.alone[torch.float64]
        error = abs(parameters - expected) / abs(expected)
        self.assertLess(error.max(), RELATIVE)

    def check_float32(self, relative, **options):
        _, loss = self.run_ranks(torch.float32, **options)
        _, expected = self.alone[torch.float32]
        self.assertLess(abs(loss - expected), relative * expected)

    def test_one_bucket(self):
        self.check_float64(bucket_cap_mb=25)

    def test_buckets_of_1_mib(self):
        self.check_float64(bucket_cap_mb=1)

    def test_gradients_that_are_views_of_buckets(self):
        self.check_float64(bucket_cap_mb=1, gradient_as_bucket_view=True)

    def test_a_static_graph(self):
        self.check_float64(bucket_cap_mb=1, static_graph=True)

    def test_no_sync(self):
        self.check_float64(halves=True)

    def test_a_loader_with_two_forked_workers(self):
        self.check_float64(loader=True)

    def test_float32(self):
        self.check_float32(0.01)

    def test_gradients_that_are_compressed_to_float16(self):
        self.check_float32(0.05, hook="fp16", bucket_cap_mb=1)

    def test_gradients_that_are_compressed_by_power_sgd(self):
        """Its callbacks make calls, and wait for them."""
        _, loss = self.run_ranks(torch.float32, hook="powerSGD", bucket_cap_mb=25)
        _, expected = self.alone[torch.float32]
        self.assertLess(loss, max(0.1, 2 * expected))


if __name__ == "__main__":
    unittest.main()
