"""ringpipe.chainermn between 4 ranks gives what numpy computes: each function of the
communicator, with shapes that differ by rank; split and shrink; gradients that are
missing; and what is wrong on one rank is an error on all."""

import contextlib
import os
import time
import types
import unittest
import warnings

import numpy

import ringpipe
from ringpipe import chainermn
from ringpipe.chainermn import exchange, meeting

RANKS = 4


def rows(rank):
    """Another shape on each rank, none on rank 0."""
    return numpy.arange(rank * 3, dtype="float32").reshape(rank, 3) + rank


def messages(rank):
    """Of every kind, by rank."""
    return [
        numpy.full((2, 3), rank, "float64"),
        rows(rank),
        (rows(rank), numpy.array(rank, "int64"), numpy.array([rank % 2 == 0])),
        tuple(numpy.full(5, rank, kind) for kind in ("float16", "complex64", "int16")[:rank]),
        numpy.arange(12.0).reshape(3, 4).T[::2] + rank,
        numpy.asfortranarray(numpy.arange(6).reshape(2, 3)),
        numpy.arange(1000 * rank, dtype=">i4"),
    ]


def expect(found, expected, *context):
    """The same arrays, bit by bit, of the same types but for the order of bytes."""
    if isinstance(expected, tuple):
        assert isinstance(found, tuple) and len(found) == len(expected), (found, context)
        for one, other in zip(found, expected):
            expect(one, other, *context)
        return
    expected = numpy.asarray(expected)
    numpy.testing.assert_array_equal(
        found, expected.astype(expected.dtype.newbyteorder("=")), err_msg=str(context), strict=True)


@contextlib.contextmanager
def raises(kind, text):
    """That ends so, with `text` in the message."""
    try:
        yield
    except kind as error:
        assert text in str(error), error
    else:
        raise AssertionError(f"no {kind.__name__} with {text}")


def check_places():
    with chainermn.create_communicator() as comm:
        assert (comm.rank, comm.size) == (int(os.environ["RINGPIPE_RANK"]), RANKS)
        assert (comm.intra_rank, comm.intra_size) == (comm.rank, RANKS)
        assert (comm.inter_rank, comm.inter_size) == (0, 1)
    rank = int(os.environ["RINGPIPE_RANK"])
    os.environ["RINGPIPE_HOST_ID"] = f"host {rank % 2}"
    with chainermn.create_communicator() as comm:
        assert (comm.intra_rank, comm.intra_size) == (rank // 2, 2)
        assert (comm.inter_rank, comm.inter_size) == (rank % 2, 2)
        with raises(ringpipe.InvalidArgument, "2 hosts"):
            chainermn.create_communicator("single_node", comm.communicator)
        expect(comm.allgather(rows(rank)), tuple(rows(other) for other in range(RANKS)))


def check_arrays():
    with chainermn.create_communicator("hierarchical") as comm:
        everything = [messages(rank) for rank in range(RANKS)]
        for index, mine in enumerate(messages(comm.rank)):
            of_all = tuple(everything[rank][index] for rank in range(RANKS))
            expect(comm.allgather(mine), of_all, "allgather", index)
            for root in (0, 2):
                found = comm.bcast(mine, root=root)
                if comm.rank == root:
                    assert found is mine
                else:
                    expect(found, of_all[root], "bcast", index)
                found = comm.gather(mine, root)
                if comm.rank == root:
                    expect(found, of_all, "gather", index)
                else:
                    assert found is None
                expect(comm.scatter(of_all if comm.rank == root else None, root),
                       of_all[comm.rank], "scatter", index)
            # Rank r sends what is rank s's to rank s: equal parts for some, for others not.
            expect(comm.alltoall(of_all), (mine,) * RANKS, "alltoall", index)
            expect(comm.alltoall([mine] * RANKS), of_all, "alltoall", index)
        expect(comm.scatter(numpy.arange(12).reshape(RANKS, 3)),
               numpy.arange(12).reshape(RANKS, 3)[comm.rank], "scatter of an array")


def check_allreduce():
    with chainermn.create_communicator("pure_nccl") as comm:
        for mine in (numpy.full((3, 2), comm.rank + 1.0), numpy.arange(100_003) * comm.rank,
                     numpy.empty((0, 3), "float32"), numpy.arange(8.0).reshape(2, 4).T):
            before = mine.copy()
            all_ranks = comm.allgather(mine)
            found = comm.allreduce(mine)
            expect(found, numpy.sum(all_ranks, axis=0, dtype=mine.dtype), "allreduce")
            assert not numpy.shares_memory(found, mine)
            expect(mine, before, "what is added is as it was")
        expect(comm.allreduce(1.5), numpy.array(6.0), "of a number")
        expect(comm.allreduce((numpy.ones(3), numpy.ones(2))),
               (numpy.full(3, 4.0), numpy.full(2, 4.0)), "of a tuple")


def check_objects():
    with chainermn.create_communicator("naive") as comm:
        # Short ones, whose calls are one, and others; at the border too.
        border = exchange._ROOM  # pylint: disable=protected-access
        for length in (0, 10, border - 60, *range(border - 25, border + 5), 100_000):
            mine = {"rank": comm.rank, "text": "x" * (length if comm.rank % 2 else 3)}
            of_all = comm.allgather_obj(mine)
            assert [one["rank"] for one in of_all] == list(range(RANKS))
            assert of_all[comm.rank] == mine
            assert len(of_all[1]["text"]) == length
            for root in (1, 2):
                assert comm.bcast_obj(mine, root=root) == of_all[root]
                assert comm.gather_obj(mine, root) == (of_all if comm.rank == root else None)
                assert comm.scatter_obj(of_all if comm.rank == root else None, root) == mine
        assert comm.allreduce_obj([comm.rank]) == [0, 1, 2, 3]
        assert comm.allreduce_obj(comm.rank) == 6


class Wordless:
    """What cannot be said."""

    def __str__(self):
        raise LookupError("no text")


class Unpicklable:
    """Whose error says `text`."""

    def __init__(self, text):
        self._text = text

    def __reduce__(self):
        raise ValueError(self._text)


def check_wrong_on_one_rank():
    with chainermn.create_communicator() as comm:
        for call in (comm.gather, comm.allgather):
            with raises(ringpipe.InvalidArgument, "is no array of numbers"):
                call(object() if comm.rank == 2 else numpy.ones(3))
        with raises(ringpipe.InvalidArgument, "is no array of numbers"):
            comm.bcast(object())
        for xs in (numpy.ones((3, 2)), [numpy.ones(1)] * 5, 7):
            with raises(ringpipe.InvalidArgument, "for each of the 4 ranks"):
                comm.scatter(xs if comm.rank == 1 else None, root=1)
            with raises(ringpipe.InvalidArgument, "for each of the 4 ranks"):
                comm.alltoall(xs if comm.rank == 1 else [numpy.ones(1)] * 4)
        with raises(ringpipe.InvalidArgument, "one for each of the 4 ranks"):
            comm.scatter_obj([1, 2] if comm.rank == 3 else None, root=3)
        for call in (comm.bcast_obj, comm.allgather_obj):
            with raises(Exception, "local object"):  # which pickle cannot send
                call((lambda: 0) if comm.rank == 0 else 1)
        for text, told in (("\udcff", r"\udcff"), (Wordless(), "a ValueError, which has no text")):
            try:
                comm.bcast_obj(Unpicklable(text) if comm.rank == 0 else 1)
            except ringpipe.InvalidArgument as error:
                assert comm.rank != 0 and told in str(error), error
            except ValueError as error:
                assert comm.rank == 0 and error.args == (text,)
            else:
                raise AssertionError("nothing was wrong")
        with raises(ringpipe.InvalidArgument, "is no dataset"):
            chainermn.scatter_dataset(3, comm)
        with raises(ringpipe.InvalidArgument, "from 0 to 3"):
            comm.bcast(numpy.ones(1), root=4)
        expect(comm.allreduce(numpy.ones(2)), numpy.full(2, 4.0), "and it goes on")


def check_refused():
    with raises(ringpipe.InvalidArgument, "flat, hierarchical"):
        chainermn.create_communicator("dummy")
    with raises(ringpipe.InvalidArgument, "pass a ringpipe.Communicator"):
        chainermn.create_communicator("flat", 7)
    with chainermn.create_communicator() as comm:
        for name, call in (("send", lambda: comm.send(numpy.ones(1), 1, 0)),
                           ("recv", lambda: comm.recv(1, 0)),
                           ("send_obj", lambda: comm.send_obj(1, 1)),
                           ("recv_obj", lambda: comm.recv_obj(1))):
            with raises(NotImplementedError, f"{name} comes with a later version"):
                call()
        with raises(NotImplementedError, "double_buffering"):
            chainermn.create_multi_node_optimizer(Step(), comm, double_buffering=True)
        with raises(ringpipe.InvalidArgument, "is no optimizer"):
            chainermn.create_multi_node_optimizer(7, comm)
        with raises(ringpipe.InvalidArgument, "call setup"):
            chainermn.create_multi_node_optimizer(Step(), comm).update()
        with raises(ringpipe.InvalidArgument, "is no model"):
            comm.bcast_data(7)


def check_configuration():
    with chainermn.create_communicator(allreduce_grad_dtype="float32") as comm:
        assert comm.get_config("allreduce_grad_dtype") == numpy.float32
        comm.set_config("batched_copy", False)
        comm.set_config("allreduce_grad_dtype", numpy.float16)
        assert comm.get_config() == {"allreduce_grad_dtype": numpy.dtype("float16"),
                                     "batched_copy": False}
        with comm.config_scope():
            comm.batched_copy = True
            comm.allreduce_grad_dtype = None
            with raises(ringpipe.InvalidArgument, "there are allreduce_grad_dtype, batched_copy"):
                comm.batched = True
            comm.split(0, 0).finalize()  # which counts, in attributes of its own
        assert comm.batched_copy is True and comm.get_config("allreduce_grad_dtype") is None
        comm.note = "no configuration"
        assert comm.note == "no configuration" and len(comm.get_config()) == 2
        for call in (comm.set_config, comm.get_config):
            with raises(ringpipe.InvalidArgument, "there are allreduce_grad_dtype"):
                call("fast")
        with raises(ringpipe.InvalidArgument, "it is one of float16"):
            comm.set_config("allreduce_grad_dtype", "int32")
        with raises(AttributeError, "has no nothing"):
            comm.nothing  # pylint: disable=pointless-statement


def check_split():
    with chainermn.create_communicator(allreduce_grad_dtype="float64") as comm:
        with comm.split(comm.rank % 2, -comm.rank) as half:
            assert (half.rank, half.size) == (1 - comm.rank // 2, 2)
            assert half.allgather_obj(comm.rank) == [comm.rank % 2 + 2, comm.rank % 2]
            assert half.get_config("allreduce_grad_dtype") == numpy.float64
            assert half.intra_size == 2
            # In turn with the calls of all.
            assert comm.allreduce_obj(half.allreduce_obj(1)) == 8
            with half.split(half.rank, 0) as alone:
                assert (alone.rank, alone.size) == (0, 1)
                expect(alone.allreduce(numpy.ones(2)), numpy.ones(2), "alone")
        some = comm.split(None if comm.rank == 1 else 7, 0)
        if comm.rank == 1:
            assert some is None
        else:
            assert some.allgather_obj(comm.rank) == [0, 2, 3]
            some.finalize()
        with raises(Exception, "integer"):
            comm.split("left" if comm.rank == 2 else 0, 0)
        assert comm.allreduce_obj(1) == 4


def check_split_between_hosts():
    """As if ranks 0 and 2 were on another host than 1 and 3: unix sockets do not do."""
    rank = int(os.environ["RINGPIPE_RANK"])
    os.environ.update(RINGPIPE_SECRET="of this test", MASTER_ADDR="127.0.0.1")
    namespace = meeting._namespace  # pylint: disable=protected-access
    meeting._namespace = lambda kind: f"{namespace(kind)} {rank % 2}"
    with chainermn.create_communicator() as comm:
        assert comm.inter_size == 2
        places = comm._places  # pylint: disable=protected-access
        assert places.root("here", [1, 3]) == "unix:@here"
        assert places.root("there", [1, 2]).startswith("127.0.0.1:1")
        for turn in range(2):
            with comm.split(0, -rank) as turned:
                assert turned.allgather_obj(rank) == [3, 2, 1, 0], turn
        with comm.split(rank % 2, rank) as host:
            assert host.allgather_obj(rank) == [rank % 2, rank % 2 + 2]
        if rank != 0:
            with comm.shrink([0]) as left:
                assert left.allgather_obj(rank) == [1, 2, 3]


def check_shrink():
    comm = chainermn.create_communicator(allreduce_grad_dtype="float32")
    with raises(ringpipe.InvalidArgument, "pass the `ranks`"):
        comm.shrink([comm.rank])
    with raises(ringpipe.InvalidArgument, "pass the `ranks`"):
        comm.shrink([4])
    if comm.rank == 3:
        comm.finalize()
        return
    if comm.rank == 1:
        time.sleep(2.5)  # It computes, for longer than the first attempt of the others.
    left = comm.shrink([3])
    assert comm.communicator.closed
    assert (left.rank, left.size) == (comm.rank, 3)
    assert left.get_config("allreduce_grad_dtype") == numpy.float32
    assert left.allreduce_obj(1) == 3
    # Each takes another rank for lost, and waits for the third: not forever.
    with raises(ringpipe.Timeout, "rank"):
        left.shrink([(left.rank + 1) % 3], join_timeout=1)
    left.finalize()


class Parameter(types.SimpleNamespace):
    """data and grad."""


class Named:
    """A model whose parameters come in another order on each rank."""

    def __init__(self, rank, parameters):
        self._parameters = parameters
        self._turn = rank % max(1, len(parameters))

    def namedparams(self):
        pairs = list(self._parameters.items())
        return iter(pairs[self._turn:] + pairs[:self._turn])


class InOrder:
    """A model whose parameters have no names of their own."""

    def __init__(self, *parameters):
        self._parameters = parameters

    def params(self):
        return iter(self._parameters)


class Step:
    """An optimizer that counts."""

    def __init__(self):
        self.updates = 0
        self.rate = 0.5

    def setup(self, model):
        self.target = model

    def update(self):
        self.updates += 1


def parameter(data, grad=None, kind="float32"):
    return Parameter(data=numpy.array(data, kind),
                     grad=None if grad is None else numpy.array(grad, kind))


def check_broadcast_of_data():
    with chainermn.create_communicator() as comm:
        rank = comm.rank
        model = Named(rank, {
            "b": parameter([rank] * 3, kind="float64"), "a": parameter([[rank + 1.0]]),
            "c": parameter(rank + 2), "none": Parameter(data=None, grad=None),
            "turned": Parameter(data=numpy.arange(6.0).reshape(2, 3).T + rank, grad=None)})
        places = dict(model.namedparams())["b"].data
        comm.bcast_data(model)
        found = dict(model.namedparams())
        expect(found["a"].data, numpy.array([[1.0]], "float32"))
        expect(found["b"].data, numpy.zeros(3))
        assert found["b"].data is places
        expect(found["c"].data, numpy.array(2, "float32"))
        expect(found["turned"].data, numpy.arange(6.0).reshape(2, 3).T)
        assert found["none"].data is None
        with raises(ringpipe.InvalidArgument, "rank 2's a of float64 (1,)"):
            comm.bcast_data(Named(0, {"a": parameter([1], kind="float64" if rank == 2 else "f4")}))
        with raises(ringpipe.InvalidArgument, "has 1 parameters, rank 1's 2"):
            comm.bcast_data(InOrder(*[parameter([1])] * (2 if rank == 1 else 1)))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            comm.broadcast_data(InOrder(parameter([1])))
        assert [one.category for one in caught] == [DeprecationWarning]


def check_mean():
    with chainermn.create_communicator() as comm:
        rank = comm.rank
        turned = numpy.asfortranarray(numpy.arange(6.0).reshape(2, 3)) * rank
        fixed = numpy.full(4, rank, "float32")
        fixed.flags.writeable = False
        model = Named(rank, {
            "single": parameter(numpy.zeros(1000), numpy.arange(1000) * (rank + 1)),
            "double": parameter([0.0], [rank / 3], "float64"), "zero": parameter(0, rank),
            "turned": Parameter(data=numpy.zeros((2, 3)), grad=turned),
            "fixed": Parameter(data=numpy.zeros(4, "float32"), grad=fixed)})
        found = dict(model.namedparams())
        places = found["single"].grad
        comm.multi_node_mean_grad(model)
        assert found["single"].grad is places
        expect(places, (numpy.arange(1000) * 10 * 0.25).astype("float32"))
        numpy.testing.assert_allclose(found["double"].grad, [0.5], rtol=1e-15)
        expect(found["zero"].grad, numpy.array(1.5, "float32"))
        expect(found["turned"].grad, numpy.arange(6.0).reshape(2, 3) * 1.5)
        expect(found["fixed"].grad, numpy.full(4, 1.5, "float32"))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            comm.allreduce_grad(model)
        assert [one.category for one in caught] == [DeprecationWarning]


def check_mean_in_another_type():
    with chainermn.create_communicator() as comm:
        def mean(kind):
            model = InOrder(parameter([0, 0], [60_000, 1 + comm.rank * 2.0 ** -10], kind))
            comm.multi_node_mean_grad(model)
            return next(model.params()).grad

        with numpy.errstate(over="ignore"):
            expect(mean("float16")[:1], numpy.array([numpy.inf], "float16"), "in its own type")
        comm.set_config("allreduce_grad_dtype", "float32")
        expect(mean("float16"), numpy.array([60_000, 1 + 1.5 * 2.0 ** -10], "float16"),
               "rounded once")
        comm.set_config("allreduce_grad_dtype", "float16")
        expect(mean("float32")[:1], numpy.array([numpy.inf], "float32"), "in float16")


def check_missing_gradients():
    with chainermn.create_communicator() as comm:
        rank = comm.rank

        def model():
            return InOrder(
                parameter([1, 2], [rank, 1]), parameter([3], None if rank == 1 else [4]),
                parameter([5]), Parameter(data=None, grad=None))

        filled = model()
        comm.multi_node_mean_grad(filled, zero_fill=True)
        gradients = [one.grad for one in filled.params()]
        expect(gradients[0], numpy.array([1.5, 1], "float32"))
        expect(gradients[1], numpy.array([3], "float32"), "rank 1 counts as zero")
        expect(gradients[2], numpy.array([0], "float32"), "nobody has it")
        assert gradients[3] is None
        left_out = model()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            comm.multi_node_mean_grad(left_out)
        gradients = [one.grad for one in left_out.params()]
        expect(gradients[0], numpy.array([1.5, 1], "float32"))
        assert gradients[1:] == [None, None, None], gradients
        assert ["number 1 are left out" in str(one.message) for one in caught] == [True]
        comm.multi_node_mean_grad(InOrder())
        with raises(ringpipe.InvalidArgument, "from 0 to 2"):
            comm.multi_node_mean_grad(InOrder(*[parameter([1], [1])] * (0 if rank == 1 else 2)))
        assert comm.allreduce_obj(1) == RANKS


def check_optimizer():
    with chainermn.create_communicator() as comm:
        rank = comm.rank
        one = parameter([rank], [rank])
        model = InOrder(one)
        step = Step()
        optimizer = chainermn.create_multi_node_optimizer(step, comm)
        assert optimizer.setup(model) is optimizer and step.target is model
        optimizer.update()
        assert (step.updates, optimizer.updates, one.data[0], one.grad[0]) == (0, 0, 0, rank)
        optimizer.update()
        assert (step.updates, one.grad[0]) == (1, 1.5)
        optimizer.rate = 0.25
        assert step.rate == 0.25
        # With a loss, as Chainer's optimizers.
        done = []
        model.cleargrads = lambda: done.append("clear")

        def loss(value, power):
            assert (value, power) == (2, 3)
            return types.SimpleNamespace(backward=lambda: done.append("backward"))

        optimizer.update(loss, 2, power=3)
        assert (done, step.updates) == (["clear", "backward"], 2)
        # A parameter more: the data first.
        model._parameters += (parameter([rank + 5], [1]),)  # pylint: disable=protected-access
        optimizer.update()
        assert step.updates == 2 and list(model.params())[1].data == 5
        optimizer.update()
        assert step.updates == 3


def check_dataset():
    with chainermn.create_communicator() as comm:
        for length in (0, 3, 10, 12):
            examples = [(index, str(index)) for index in range(length)]
            for root in (0, 2):
                mine = chainermn.scatter_dataset(examples if comm.rank == root else None, comm,
                                                 root)
                of_all = comm.allgather_obj(mine)
                assert sorted(set(sum(of_all, []))) == examples
                assert {len(part) for part in of_all} == {-(-length // RANKS)}
                mine = chainermn.scatter_dataset(examples if comm.rank == root else None, comm,
                                                 root, force_equal_length=False)
                assert sum(comm.allgather_obj(mine), []) == examples
        table = numpy.arange(40).reshape(20, 2)
        mine = chainermn.scatter_dataset(table, comm, shuffle=True, seed=3)
        order = numpy.random.RandomState(3).permutation(20)
        expect(mine, table[order[comm.rank * 5:comm.rank * 5 + 5]], "shuffled")


def check_given():
    with ringpipe.Communicator() as below:
        with chainermn.create_communicator("flat", below) as comm:
            assert comm.communicator is below and comm.allreduce_obj(1) == RANKS
        assert not below.closed
        below.barrier()


class ChainerMnTest(unittest.TestCase):

    def test_ranks_know_their_hosts(self):
        ringpipe.spawn(check_places, RANKS)

    def test_arrays_go_whole_whatever_their_shapes(self):
        ringpipe.spawn(check_arrays, RANKS)

    def test_allreduce_is_the_sum_in_new_arrays(self):
        ringpipe.spawn(check_allreduce, RANKS)

    def test_objects_of_any_length(self):
        ringpipe.spawn(check_objects, RANKS)

    def test_what_is_wrong_on_one_rank_is_an_error_on_all(self):
        ringpipe.spawn(check_wrong_on_one_rank, RANKS)

    def test_what_there_is_not_is_refused_by_name(self):
        ringpipe.spawn(check_refused, RANKS)

    def test_configuration_by_name_and_in_a_scope(self):
        ringpipe.spawn(check_configuration, RANKS)

    def test_split_by_colour_in_the_order_of_keys(self):
        ringpipe.spawn(check_split, RANKS)

    def test_split_and_shrink_between_hosts(self):
        ringpipe.spawn(check_split_between_hosts, RANKS)

    def test_shrink_leaves_the_others_and_never_hangs(self):
        ringpipe.spawn(check_shrink, RANKS)

    def test_parameters_become_those_of_rank_0(self):
        ringpipe.spawn(check_broadcast_of_data, RANKS)

    def test_gradients_become_their_mean_where_they_lie(self):
        ringpipe.spawn(check_mean, RANKS)

    def test_gradients_are_added_up_in_the_type_that_is_set(self):
        ringpipe.spawn(check_mean_in_another_type, RANKS)

    def test_missing_gradients_are_zero_or_left_out_alike(self):
        ringpipe.spawn(check_missing_gradients, RANKS)

    def test_an_optimizer_steps_by_the_mean(self):
        ringpipe.spawn(check_optimizer, RANKS)

    def test_a_dataset_is_dealt_out(self):
        ringpipe.spawn(check_dataset, RANKS)

    def test_a_communicator_that_is_given_stays_the_callers(self):
        ringpipe.spawn(check_given, RANKS)


if __name__ == "__main__":
    unittest.main()
