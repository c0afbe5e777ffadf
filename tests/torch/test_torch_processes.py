"""The operators in other processes: workers of a DataLoader that are forked, and processes that are spawned."""

from typing import Any

import pytest

from optional import framework

torch = framework("torch")

import rowgrad.torch as rt  # noqa: E402

DATA = torch.arange(4096.0).reshape(1024, 4)


class Pooled(torch.utils.data.Dataset):  # type: ignore[misc, name-defined]
    """Each item is the result of an operator, large enough for all threads."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, item: int) -> Any:
        return pooled(item)


def pooled(item: int) -> Any:
    ids = (torch.arange(50_000) * (item + 1)) % 1024
    data = DATA.clone().requires_grad_()
    rt.sparse_segment_mean(data, ids, torch.arange(50_000) // 50, 1000).square().sum().backward()
    return data.grad


def put(item: int, answers: Any) -> None:
    answers.put(pooled(item).numpy())


# Python warns of a fork while threads run; ours are prepared for it (see docs/decisions/threads.md).
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_workers_that_are_forked() -> None:
    expected = [pooled(item) for item in range(4)]  # the parent has its threads running
    loader = torch.utils.data.DataLoader(Pooled(), num_workers=2, batch_size=None, multiprocessing_context="fork")
    for one, other in zip(loader, expected, strict=True):
        assert torch.equal(one, other)


def test_a_process_that_is_spawned() -> None:
    context = torch.multiprocessing.get_context("spawn")
    answers = context.SimpleQueue()
    process = context.Process(target=put, args=(2, answers))
    process.start()
    found = answers.get()
    process.join()
    assert process.exitcode == 0
    assert torch.equal(torch.from_numpy(found), pooled(2))
