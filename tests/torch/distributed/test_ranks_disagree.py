"""What is wrong on one rank is an error on all, at once, and the layer works afterwards."""

import time

import pytest

from optional import framework

torch = framework("torch")
import torch.distributed as dist  # noqa: E402

from rowgrad import RowgradError, optim  # noqa: E402
from rowgrad.torch import EmbeddingBagConfig  # noqa: E402
from rowgrad.torch.distributed import Planner, ShardedEmbeddingBag, ShardedEmbeddingBagCollection  # noqa: E402


def made(group, wrong):
    """What comes of a layer that rank 1 makes with other settings."""
    settings = {"num_embeddings": 10, "embedding_dim": 3, "combiner": "sum", "fused_optimizer": optim.SGD(0.1)}
    if dist.get_rank(group) == 1:
        settings |= wrong
    try:
        ShardedEmbeddingBag(group=group, **settings)
    except RowgradError as error:
        return type(error).__name__, error.code, error.argument, str(error)


@pytest.mark.parametrize(
    "wrong",
    [
        {"num_embeddings": 11},
        {"embedding_dim": 4},
        {"combiner": "mean"},
        {"exact": True},
        {"sharding": "hash"},
        {"dtype": torch.bfloat16},
        {"padding_idx": 2},
        {"seed": 1},
        {"gradient_average": True},
        {"fused_optimizer": optim.SGD(0.2)},
        {"fused_optimizer": None},
    ],
    ids=str,
)
def test_other_settings_are_found_when_the_layer_is_made(ranks, wrong):
    for kind, code, argument, message in ranks.run(3, made, wrong):
        assert (kind, code, [argument]) == ("PeerError", "ranks-differ", list(wrong))
        assert "rank 1" in message


def test_settings_that_one_rank_refuses(ranks):
    found = ranks.run(3, made, {"combiner": "median"})
    assert [kind[:2] for kind in found] == [
        ("PeerError", "peer-refused"),
        ("InvalidArgumentError", "bad-combiner"),
        ("PeerError", "peer-refused"),
    ]


@pytest.mark.parametrize(
    ("wrong", "own"),
    [
        ({"combiner": []}, ("InvalidArgumentError", "bad-combiner")),
        ({"seed": "x"}, ("InvalidArgumentError", "wrong-argument")),
        ({"fused_optimizer": {}}, ("DTypeError", "wrong-dtype")),
        ({"_weight": [[1.0] * 3] * 10}, ("DTypeError", "wrong-dtype")),
        ({"_weight": torch.ones(10, 3).to_sparse()}, ("InvalidArgumentError", "wrong-layout")),
        ({"padding_idx": "x"}, ("InvalidArgumentError", "index-out-of-range")),
        ({"num_embeddings": 2**50}, ("OutOfMemoryError", "out-of-memory")),
        ({"embedding_dim": 2**63}, ("InvalidArgumentError", "too-large")),
        ({"exact": torch.tensor([True, False])}, ("InvalidArgumentError", "wrong-argument")),
    ],
    ids=["combiner", "seed", "optimizer", "list", "sparse", "padding", "memory", "columns", "flag"],
)
def test_arguments_of_a_wrong_kind_on_one_rank(ranks, wrong, own):
    """The other ranks are told, and do not wait for one that has raised."""
    found = ranks.run(2, made, wrong)
    assert [kind[:2] for kind in found] == [("PeerError", "peer-refused"), own]


def given_what_is_no_batch(group):
    """What comes of inputs that PyTorch itself refuses, on rank 1, and of the layers afterwards."""
    rank, found = dist.get_rank(group), []
    bag = ShardedEmbeddingBag(10, 3, group=group)
    collection = ShardedEmbeddingBagCollection([EmbeddingBagConfig("a", 10, 3)], group=group, placement="row")
    good = torch.tensor([[1, 2]])

    def attempt(call):
        try:
            call()
        except RowgradError as error:
            found.append((type(error).__name__, error.code))

    for wrong in (good.to_sparse(), "x", good.to("meta")):
        attempt(lambda wrong=wrong: bag(wrong if rank else good))
        attempt(lambda wrong=wrong: collection({"a": wrong if rank else good}))
    attempt(lambda: bag(good, None, "x" if rank else None))
    attempt(lambda: bag(good[0], segment_ids=torch.tensor([0, 2**62 if rank else 0])))
    attempt(lambda: bag(good[0], segment_ids=torch.tensor([0, 0]), num_bags="x" if rank else 1))
    assert bag(good).shape == collection({"a": good}).values().shape == (1, 3)
    return found


def test_inputs_that_are_no_batch_on_one_rank(ranks):
    told, own = ranks.run(2, given_what_is_no_batch)
    assert told == [("PeerError", "peer-refused")] * 9
    assert len(own) == 9 and all(kind != "PeerError" for kind, _ in own)


def test_whole_tables_of_a_wrong_kind(ranks):
    ranks.run(1, refuses_tables)


def refuses_tables(group):
    collection = ShardedEmbeddingBagCollection([EmbeddingBagConfig("a", 10, 3)], group=group)
    for tables in (None, {"a": [[1.0] * 3] * 10}, {"a": torch.ones(10, 3, device="meta")}, {"a": torch.ones(3, 10)}):
        with pytest.raises(RowgradError, match="tables"):
            collection.load_tables(tables)
    for rank in (1, -1, "x", True):
        with pytest.raises(RowgradError, match=r"rank is .*; allowed: None, for all ranks, or 0 to 0"):
            collection.gather_tables(rank=rank)
    with pytest.raises(RowgradError, match="names is 3"):
        collection.gather_tables(3)
    for timeout in ("x", float("inf"), float("nan"), 1e300, True):
        with pytest.raises(RowgradError, match="timeout is"):
            ShardedEmbeddingBag(4, 2, timeout=timeout)
    for settings in ({"bags": "x"}, {"memory": float("nan")}, {"placement": "row"}):
        with pytest.raises(RowgradError, match=rf"{next(iter(settings))} is"):
            Planner(**settings)
    with pytest.raises(RowgradError, match="group is 'x'; it must be a process group"):
        ShardedEmbeddingBag(4, 2, group="x")


def called(group, ids, bags, no_grad):
    bag = ShardedEmbeddingBag(10, 3, combiner="sum", group=group, _weight=torch.ones(10, 3))
    right = torch.tensor([1, 9]), torch.tensor([0, 1])
    wrong = dist.get_rank(group) == 1
    found = None
    with torch.set_grad_enabled(not (wrong and no_grad)):
        try:
            given = (torch.tensor(ids), torch.tensor(bags)) if wrong else right
            bag(given[0], segment_ids=given[1], num_bags=2)
        except RowgradError as error:
            found = type(error).__name__, error.code, str(error)
    output = bag(right[0], segment_ids=right[1])
    output.sum().backward()
    assert output.tolist() == [[1.0] * 3] * 2
    return found


@pytest.mark.parametrize(
    ("ids", "bags", "own"),
    [
        ([1, 10], [0, 1], ("OutOfRangeError", "index-out-of-range")),
        ([-1, 1], [0, 1], ("OutOfRangeError", "index-out-of-range")),
        ([1, 2], [0, 2], ("OutOfRangeError", "segment-id-out-of-range")),
        ([1, 2], [1, 0], ("InvalidArgumentError", "unsorted-segment-ids")),
        ([1.5], [0], ("DTypeError", "wrong-dtype")),
    ],
)
def test_a_bad_batch_on_one_rank(ranks, ids, bags, own):
    found = ranks.run(3, called, ids, bags, False)
    assert [kind[:2] for kind in found] == [("PeerError", "peer-refused"), own, ("PeerError", "peer-refused")]
    assert "rank 1" in found[0][2] and "rank 1" in found[2][2]


def test_gradients_on_some_ranks_only(ranks):
    found = ranks.run(3, called, [1], [0], True)
    assert all(kind[:2] == ("PeerError", "ranks-differ") and "[0, 2]" in kind[2] for kind in found)


def two_layers(group):
    settings = {"combiner": "sum", "group": group, "fused_optimizer": optim.SGD(1.0)}
    return [ShardedEmbeddingBag(100, 8, _weight=torch.zeros(100, 8), **settings) for _ in range(2)]


def skipped_backward(first, second, ids, rank):
    """Rank 1 catches an error behind the forward pass, and goes on with the next batch."""
    output = first(ids)
    if rank == 1:
        first(ids)
    else:
        output.sum().backward()


def skipped_forward(first, second, ids, rank):
    (first if rank == 0 else second)(ids)


def other_order(first, second, ids, rank):
    """The layers' gradients are asked for in another order."""
    outputs = first(ids), second(ids)
    outputs[rank].sum().backward()


def unfinished_request(first, second, ids, rank):
    request = first.start(ids)
    if rank == 0:
        first(request)
    else:
        first.start(ids)


def whole_table(first, second, ids, rank):
    if rank == 0:
        first.full_table()
    else:
        first(ids)


def out_of_step(group, go_wrong):
    """What ranks that are at different places say, and a step that all make afterwards."""
    first, second = two_layers(group)
    ids, found = torch.arange(40).view(10, 4) * 2, None
    try:
        go_wrong(first, second, ids, dist.get_rank(group))
    except RowgradError as error:
        found = type(error).__name__, error.code, str(error)
    first(ids).sum().backward()
    rows = first.full_table()[:, 0].tolist()
    return found, rows == [-2.0 if row in range(0, 80, 2) else 0.0 for row in range(100)]


@pytest.mark.parametrize(
    ("go_wrong", "places"),
    [
        (skipped_backward, ("rank 0: backward pass 1 of layer", "rank 1: forward pass 2 of layer")),
        (skipped_forward, ("rank 0: forward pass 1 of layer", "rank 1: forward pass 1 of layer")),
        (other_order, ("rank 0: backward pass 1 of layer", "rank 1: backward pass 1 of layer")),
        (unfinished_request, ("rank 0: finishing request 1 of layer", "rank 1: forward pass 2 of layer")),
        (whole_table, ("rank 0: gathering the table of layer", "rank 1: forward pass 1 of layer")),
    ],
)
def test_a_rank_that_left_a_step_early_is_found_by_all(ranks, go_wrong, places):
    for found, goes_on in ranks.run(2, out_of_step, go_wrong):
        assert found is not None
        assert found[:2] == ("PeerError", "ranks-apart")
        assert all(place in found[2] for place in places)
        assert goes_on


def failed_between_messages(group):
    """After an error of its own in the middle of an exchange a rank refuses to mix up messages."""
    bag = ShardedEmbeddingBag(10, 3, group=group)
    trade = bag.exchange.trade
    bag.exchange.trade = None
    with pytest.raises(TypeError):
        bag(torch.tensor([[1]]))
    bag.exchange.trade = trade
    try:
        bag(torch.tensor([[1]]))
    except RowgradError as error:
        return type(error).__name__, error.code, str(error)
    finally:
        bag.exchange.done()  # other tests use the group


def test_an_exchange_that_was_left_in_the_middle(ranks):
    ((kind, code, message),) = ranks.run(1, failed_between_messages)
    assert (kind, code) == ("CommunicationError", "left-early")
    assert "forward pass 1 of layer" in message


def late(group):
    """All wait for a rank that never calls."""
    try:
        ShardedEmbeddingBag(10, 3, group=group, timeout=5.0)
    except ValueError as error:
        assert "new_group" in str(error)
    bag = ShardedEmbeddingBag(10, 3, timeout=5.0)
    assert ShardedEmbeddingBag(10, 3, timeout=5.0).exchange.group is bag.exchange.group
    if dist.get_rank(group) == 1:
        time.sleep(8)
        return None
    try:
        bag(torch.tensor([[1]]))
    except RowgradError as error:
        return type(error).__name__, error.code, str(error), isinstance(error.__cause__, RuntimeError)


def test_a_rank_that_does_not_answer(ranks):
    found = ranks.run(4, late)
    for rank in (0, 2, 3):
        kind, code, message, has_cause = found[rank]
        assert (kind, code, has_cause) == ("CommunicationError", "communication-failed", True)
        assert f"exchange of counts failed on rank {rank} of 4 after" in message


def test_without_a_process_group():
    with pytest.raises(ValueError, match="no process group"):
        ShardedEmbeddingBag(10, 3)
