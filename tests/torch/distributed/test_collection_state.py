"""Checkpoints of sharded collections, their optimizers towards the outside, and ranks that do not agree."""

import numpy as np
import pytest

from optional import framework

torch = framework("torch")
import torch.distributed as dist  # noqa: E402
import torch.distributed.checkpoint as dcp  # noqa: E402

from rowgrad import RowgradError, optim  # noqa: E402
from rowgrad.torch import EmbeddingBagConfig, KeyedJaggedTensor  # noqa: E402
from rowgrad.torch.distributed import PeerError, ShardedEmbeddingBag, ShardedEmbeddingBagCollection  # noqa: E402

TABLES = [EmbeddingBagConfig(f"t{i}", 11 + i, 8, pooling=("sum", "mean")[i % 2]) for i in range(5)]
PLACEMENTS = {
    2: {"t0": "row", "t1": "column", "t2": "table", "t3": "replicated", "t4": ("table", 1)},
    3: {"t0": "table", "t1": "row", "t2": "column", "t3": "row", "t4": "replicated"},
    1: "auto",
}


def made(group, **settings):
    size = dist.get_world_size(group)
    return ShardedEmbeddingBagCollection(
        TABLES, group=group, placement=PLACEMENTS[size], exact=True, fused_optimizer=optim.Adam(0.1), **settings
    )


def step(collection, number):
    """A step with this rank's part of twelve examples."""
    rank, size = dist.get_rank(collection.exchange.group), collection.exchange.size
    random = np.random.default_rng(number)
    ids = [torch.from_numpy(random.integers(0, t.num_embeddings, (12, 3))) for t in TABLES]
    mine = slice(12 * rank // size, 12 * (rank + 1) // size)
    features = {t.name: each[mine] for t, each in zip(TABLES, ids, strict=True)}
    values = collection(features).values()
    (values * torch.from_numpy(random.normal(size=(12, 40))).float()[mine]).sum().backward()


def state_of(collection, whose):
    """The state of fused optimizers stands in both state dicts; with "optimizer", only in that of the optimizer."""
    model = {key: value for key, value in collection.state_dict().items() if whose == "both" or "fused" not in key}
    return {"model": model, "optimizer": collection.optimizer.state_dict()}


def first_half(group, path, whose):
    collection = made(group)
    scheduler = torch.optim.lr_scheduler.StepLR(collection.optimizer, step_size=1, gamma=0.5)
    for number in range(3):
        step(collection, number)
        collection.optimizer.step()
        scheduler.step()
    dcp.save(state_of(collection, whose), checkpoint_id=path, process_group=group)
    for number in range(3, 5):
        step(collection, number)
    return {name: table.numpy() for name, table in collection.gather_tables().items()}


def second_half(group, path, whose):
    collection = made(group, seed=99)
    # The scheduler adds a setting to the groups, and PyTorch loads what the state_dict has that it is given.
    torch.optim.lr_scheduler.StepLR(collection.optimizer, step_size=1, gamma=0.5)
    state = state_of(collection, whose)
    dcp.load(state, checkpoint_id=path, process_group=group)
    collection.load_state_dict(state["model"], strict=whose == "both")
    collection.optimizer.load_state_dict(state["optimizer"])
    for number in range(3, 5):
        step(collection, number)
    lr = [each["lr"] for each in collection.optimizer.param_groups]
    return {name: table.numpy() for name, table in collection.gather_tables().items()}, lr


@pytest.mark.parametrize(
    ("before", "after", "whose"),
    [(2, 3, "both"), (2, 3, "optimizer"), (3, 1, "both"), (1, 2, "optimizer"), (3, 2, "optimizer")],
)
def test_another_number_of_ranks_goes_on_from_a_checkpoint(ranks, tmp_path, before, after, whose):
    expected = ranks.run(before, first_half, str(tmp_path / "saved"), whose)[0]
    for found, lr in ranks.run(after, second_half, str(tmp_path / "saved"), whose):
        assert lr == [0.0125]
        for name, table in expected.items():
            np.testing.assert_array_equal(found[name], table, err_msg=name)


def trouble(group):
    """What each rank raises where they do not agree; and that all go on afterwards, with the tables as they were."""
    found, rank = [], dist.get_rank(group)

    def attempt(action):
        try:
            action()
        except RowgradError as error:
            found.append(error.code)
        else:
            found.append("fine")

    attempt(lambda: ShardedEmbeddingBagCollection(TABLES, group=group, placement=("row", "table")[rank]))
    attempt(lambda: ShardedEmbeddingBagCollection(TABLES, group=group, placement="sideways" if rank else "row"))
    layers = ShardedEmbeddingBagCollection, ShardedEmbeddingBag
    attempt(lambda: layers[rank](*((11, 8) if rank else (TABLES,)), group=group))
    collection = made(group)
    before = collection.gather_tables()
    good = torch.tensor([1, 2, 3, 4, 5]), torch.tensor([0, 1, 2, 3, 4, 5])
    bad = torch.tensor([1, 2, 13, 4, 5]), good[1]
    attempt(lambda: collection.pool(*(bad if rank else good)))  # an id that is no row of t2
    attempt(lambda: collection.pool(good[0], good[1] if rank else good[1].flip(0)))
    output = collection.pool(*good)
    # One rank leaves between the passes, and begins its next forward pass while the others go back.
    attempt(lambda: collection.pool(*good) if rank else output.sum().backward())
    with torch.set_grad_enabled(rank == 0):
        attempt(lambda: collection.pool(*good))
    output = collection.pool(*good)
    collection.optimizer.param_groups[0]["lr"] = 0.1 + rank
    attempt(lambda: output.sum().backward())
    collection.optimizer.param_groups[0]["lr"] = 0.1
    same = all(torch.equal(table, before[name]) for name, table in collection.gather_tables().items())
    features = KeyedJaggedTensor([t.name for t in TABLES], good[0], offsets=good[1])
    collection(features).values().sum().backward()
    changed = any(not torch.equal(table, before[name]) for name, table in collection.gather_tables().items())
    return found, same, changed


def test_ranks_that_do_not_agree_raise_and_go_on(ranks):
    first, second = ranks.run(2, trouble)
    assert first == (["ranks-differ", "peer-refused", "ranks-apart", "peer-refused", "bad-offset", "ranks-apart",
                      "ranks-differ", "ranks-differ"], True, True)  # fmt: skip
    assert second == (["ranks-differ", "bad-placement", "ranks-apart", "index-out-of-range", "peer-refused",
                       "ranks-apart", "ranks-differ", "ranks-differ"], True, True)  # fmt: skip


def optimizer_needs_rows(group):
    with pytest.raises(RowgradError, match="needs whole rows"):
        ShardedEmbeddingBagCollection(TABLES, group=group, placement="column", fused_optimizer=optim.RowWiseAdagrad(1))
    with pytest.raises(PeerError if dist.get_rank(group) else RowgradError):
        ShardedEmbeddingBagCollection(TABLES[: dist.get_rank(group)], group=group)


def test_what_cannot_be_computed_is_refused(ranks):
    ranks.run(2, optimizer_needs_rows)
