"""Trains a network of two layers. Each rank computes a part of each batch.

    python3 examples/numpy_training.py --ranks 4      ranks of this host
    mpirun -n 4 python3 examples/numpy_training.py    or srun, or torchrun

Prints the loss of each step. With --checkpoint FILE it goes on from FILE, where that
exists; so do the others when a rank is lost, if what started them lets them live.
"""

import argparse
import os
import sys
import types

import numpy

import ringpipe
from ringpipe import chainermn


class Network:
    """tanh(x A + a) B + b. Of a model, the communicator needs params() alone."""

    def __init__(self):
        random = numpy.random.default_rng(0)
        self.layers = [types.SimpleNamespace(data=random.normal(0, 0.5, shape), grad=None)
                       for shape in [(2, 32), (32,), (32, 1), (1,)]]

    def params(self):
        return self.layers

    def loss(self, x, y):
        """The mean squared error; its gradients are then in the parameters."""
        A, a, B, b = (layer.data for layer in self.layers)
        hidden = numpy.tanh(x @ A + a)
        error = hidden @ B + b - y
        outer = 2 * error / len(x)
        inner = outer @ B.T * (1 - hidden ** 2)
        for layer, grad in zip(self.layers, (x.T @ inner, inner.sum(axis=0),
                                             hidden.T @ outer, outer.sum(axis=0))):
            layer.grad = grad
        return (error ** 2).mean()


class Descent:
    """Of an optimizer, setup() and update() are needed."""

    def setup(self, network):
        self.network = network

    def update(self):
        for layer in self.network.params():
            layer.data -= 0.05 * layer.grad


def save(path, step, network):
    with open(path + ".new", "wb") as file:
        numpy.savez(file, *[layer.data for layer in network.layers], step=step)
    os.replace(path + ".new", path)  # whole, or the old one


def load(path, network):
    """Returns the step; 0 if there is no checkpoint."""
    if not path or not os.path.exists(path):
        return 0
    with numpy.load(path) as saved:
        for number, layer in enumerate(network.layers):
            layer.data = saved[f"arr_{number}"]
        return int(saved["step"])


def train(comm, options):
    network = Network()
    first = comm.bcast_obj(load(options.checkpoint, network) if comm.rank == 0 else None)
    optimizer = chainermn.create_multi_node_optimizer(Descent(), comm).setup(network)
    optimizer.update()  # the first one gives all ranks the parameters of rank 0
    for step in range(first, options.steps):
        # All ranks make the whole batch, and take every size-th example. 240 can be
        # divided by many numbers of ranks: the mean over equal parts is that of all.
        x = numpy.random.default_rng(step).uniform(-2, 2, (240, 2))[comm.rank::comm.size]
        loss = network.loss(x, y=numpy.sin(2 * x[:, :1]) * x[:, 1:])
        loss = comm.allreduce(loss) / comm.size
        optimizer.update()  # all gradients become those of all ranks; then a step
        if comm.rank == 0:
            print(step, loss, flush=True)
            if options.checkpoint and (step + 1) % options.every == 0:
                save(options.checkpoint, step + 1, network)
    return [layer.data for layer in network.layers]


def run(options):
    """What each rank does."""
    comm = chainermn.create_communicator()
    while True:
        try:
            trained = train(comm, options)
            comm.finalize()
            return trained
        except ringpipe.PeerLost as lost:
            print(f"# rank {comm.rank} of {comm.size} has lost {lost.ranks}; the others go on "
                  "from the last checkpoint", file=sys.stderr, flush=True)
            comm = comm.shrink(lost.ranks, join_timeout=20)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, help="start so many here; else a launcher has")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--checkpoint", metavar="FILE")
    parser.add_argument("--every", type=int, default=50, help="steps between checkpoints")
    given = parser.parse_args()
    if given.ranks:
        ringpipe.spawn(run, given.ranks, (given,))
    else:
        run(given)
