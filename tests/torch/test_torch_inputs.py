"""What the functions take, what they refuse and how, and that they share memory with the kernels."""

import warnings
from typing import Any

import numpy as np
import pytest

import rowgrad
from optional import framework

torch = framework("torch")

import rowgrad.torch as rt  # noqa: E402

IDS = torch.tensor([0, 2, 2])
BAGS = torch.tensor([0, 1, 1])
DATA = torch.arange(12.0).reshape(4, 3)
PATHS = pytest.mark.parametrize("elsewhere", [False, True], ids=["kernels", "portable"])


@pytest.fixture
def path(elsewhere: bool) -> Any:
    if not elsewhere:
        yield
        return
    with rt.portable():
        yield


@PATHS
@pytest.mark.usefixtures("path")
def test_4096_unit_gradients_meet_in_one_row() -> None:
    ones, rows = torch.ones(4096, 1, dtype=torch.bfloat16), torch.zeros(4096, dtype=torch.int64)
    bags = torch.arange(4096)
    assert rt.sparse_segment_sum_grad(ones, rows, bags, 1).item() == 4096
    assert rt.sparse_segment_sum_grad_v2(ones, rows, bags, 1).output.item() == 4096
    table = torch.zeros(1, 1, dtype=torch.bfloat16, requires_grad=True)
    rt.sparse_segment_sum(table, rows, bags, 4096).sum().backward()
    assert table.grad.item() == 4096
    weights = torch.ones(4096, dtype=torch.bfloat16)
    assert rt.sparse_segment_weighted_sum(ones, weights, bags, rows, 1).item() == 4096


@PATHS
@pytest.mark.usefixtures("path")
def test_any_layout() -> None:
    expected = rt.sparse_segment_sum(DATA, IDS, BAGS)
    turned = DATA.T.contiguous().T
    assert not turned.is_contiguous()
    assert torch.equal(rt.sparse_segment_sum(turned, IDS.repeat_interleave(2)[::2], BAGS), expected)
    grads = torch.ones(1, 1).expand(2, 3)
    assert rt.sparse_segment_sum_grad(grads, IDS, BAGS, 4).sum() == 9
    frozen = DATA.numpy().copy()
    frozen.flags.writeable = False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch warns of such an array, once
        read_only = torch.from_numpy(frozen)
    assert torch.equal(rt.sparse_segment_sum(read_only, IDS, BAGS), expected)
    assert torch.equal(rt.sparse_segment_sum(DATA, IDS.int(), BAGS.int()), expected)


@PATHS
@pytest.mark.usefixtures("path")
def test_nothing_to_do() -> None:
    none = torch.empty(0, dtype=torch.int64)
    data = torch.empty(0, 3, requires_grad=True)
    result = rt.sparse_segment_mean(data, none, none, 2)
    assert torch.equal(result, torch.zeros(2, 3))
    result.sum().backward()
    assert data.grad.shape == (0, 3)
    assert rt.sparse_segment_mean(DATA, none, none).shape == (0, 3)
    assert rt.sparse_segment_sum(DATA[:, :0], IDS, BAGS).shape == (2, 0)
    assert rt.sparse_segment_sum_grad_v2(DATA, none, none, 4).output.shape == (0, 3)


def test_counts_in_any_form() -> None:
    expected = rt.sparse_segment_sum(DATA, IDS, BAGS, 5)
    assert expected.shape == (5, 3)
    for count in (torch.tensor(5), torch.tensor(5, dtype=torch.int32), np.int64(5)):
        assert torch.equal(rt.sparse_segment_sum(DATA, IDS, BAGS, num_segments=count), expected)
    assert torch.equal(rt.sparse_segment_sum(DATA, [0, 2, 2], [0, 1, 1], 5), expected)
    assert rt.sparse_segment_sum(DATA, IDS, BAGS, None).shape == (2, 3)
    with pytest.raises(rowgrad.DTypeError, match=r"num_segments is 5\.0; it must be a whole number"):
        rt.sparse_segment_sum(DATA, IDS, BAGS, 5.0)
    with pytest.raises(rowgrad.InvalidArgumentError, match=r"num_segments has shape \[1\]"):
        rt.sparse_segment_sum(DATA, IDS, BAGS, torch.tensor([5]))


@pytest.mark.parametrize("count", [True, np.True_, np.array(True), torch.tensor(True), [True]], ids=repr)
def test_booleans_are_no_counts(count: Any) -> None:
    with pytest.raises(rowgrad.DTypeError, match="num_segments") as info:
        rt.sparse_segment_sum(DATA, IDS, BAGS, count)
    assert (info.value.argument, info.value.code) == ("num_segments", "wrong-dtype")


@pytest.mark.parametrize(
    "size", [[1, True], (True, True), torch.tensor([True, True]), np.array([True, True])], ids=repr
)
def test_booleans_are_no_sizes(size: Any) -> None:
    with pytest.raises(rowgrad.DTypeError, match="size") as info:
        rt.sparse_slice(torch.tensor([[0, 0]]), torch.tensor([1.0]), [5, 5], [0, 0], size)
    assert (info.value.argument, info.value.code) == ("size", "wrong-dtype")


def test_numbers_where_a_scalar_is_due() -> None:
    indices = torch.tensor([[0, 0], [2, 1]])
    filled = rt.sparse_fill_empty_rows(indices, torch.tensor([1.0, 2.0]), [3, 4], -1)
    assert filled.output_values.tolist() == [1.0, -1.0, 2.0]
    again = rt.sparse_fill_empty_rows(indices, torch.tensor([1.0, 2.0]), torch.tensor([3, 4]), torch.tensor(-1.0))
    assert torch.equal(filled.output_values, again.output_values)
    with pytest.raises(rowgrad.DTypeError, match="default_value"):
        rt.sparse_fill_empty_rows(indices, torch.tensor([1, 2]), [3, 4], 0.5)


@PATHS
@pytest.mark.usefixtures("path")
@pytest.mark.parametrize(("change", "error", "code", "words"), [
    ({"indices": torch.tensor([0, 4, 2])}, rowgrad.OutOfRangeError, "index-out-of-range", r"indices\[1\] is 4"),
    ({"indices": torch.tensor([0, 2, -1])}, rowgrad.OutOfRangeError, "index-out-of-range", r"indices\[2\] is -1"),
    ({"segment_ids": torch.tensor([0, 1, 0])}, rowgrad.InvalidArgumentError, "unsorted-segment-ids", r"\[2\] is 0"),
    ({"segment_ids": torch.tensor([0, 1])}, rowgrad.InvalidArgumentError, "length-mismatch", "has length 2"),
    ({"num_segments": 1}, rowgrad.OutOfRangeError, "segment-id-out-of-range", "raise num_segments"),
    ({"num_segments": -1}, rowgrad.InvalidArgumentError, "negative-size", "num_segments is -1"),
    ({"data": torch.tensor(1.0)}, rowgrad.InvalidArgumentError, "wrong-rank", "data is a scalar"),
])  # fmt: skip
def test_errors_come_through(change: dict[str, Any], error: Any, code: str, words: str) -> None:
    arguments = {"data": DATA, "indices": IDS, "segment_ids": BAGS, "num_segments": 2} | change
    with pytest.raises(error, match=words) as caught:
        rt.sparse_segment_mean(**arguments)
    assert caught.value.code == code
    assert caught.value.op == "SparseSegmentMeanWithNumSegments"


def test_wrong_types_and_devices() -> None:
    with pytest.raises(rowgrad.DTypeError, match="data is int64; allowed: float16, bfloat16, float32, float64"):
        rt.sparse_segment_mean(DATA.long(), IDS, BAGS)
    with pytest.raises(rowgrad.DTypeError, match="indices is float32"):
        rt.sparse_segment_mean(DATA, IDS.float(), BAGS)
    with pytest.raises(rowgrad.DTypeError, match="data is int64"):  # and before it runs
        rt.sparse_segment_mean(DATA.long().to("meta"), IDS.to("meta"), BAGS.to("meta"), 2)
    assert rt.sparse_segment_mean(DATA.to("meta"), IDS.to("meta"), BAGS.to("meta"), 2).shape == (2, 3)


def test_memory_is_shared_with_the_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the operator computes on is the tensor's own memory, and so is what it gives."""
    operator = rowgrad._ops.OPERATORS["SparseSegmentSumWithNumSegments"]
    seen: list[Any] = []

    def compute(*arrays: Any) -> Any:
        result = original(*arrays)
        seen.extend([arrays[0], result])
        return result

    original = operator.compute
    monkeypatch.setitem(operator.__dict__, "compute", compute)
    for dtype in (torch.float32, torch.bfloat16):
        data = DATA.to(dtype).requires_grad_()
        result = rt.sparse_segment_sum(data, IDS, BAGS, 2)
        assert seen[-2].ctypes.data == data.data_ptr()
        assert seen[-1].ctypes.data == result.data_ptr()


def test_only_what_rules_need_is_kept() -> None:
    """The backward of a pooling needs the ids and how many rows the table has, not the table."""
    data = DATA.clone().requires_grad_()
    result = rt.sparse_segment_sum(data, IDS, BAGS)
    assert {x.data_ptr() for x in result.grad_fn.saved_tensors} == {IDS.data_ptr(), BAGS.data_ptr()}


@PATHS
@pytest.mark.usefixtures("path")
@pytest.mark.parametrize(
    "ids",
    [torch.tensor([0, 2, 9]), torch.tensor([0.0, 2.0, 2.0]), torch.tensor([[0, 2, 2]])],
    ids=["far", "real", "rank"],
)
def test_tensors_on_the_cpu_are_not_sent_there(ids: Any) -> None:
    with pytest.raises(rowgrad.RowgradError) as caught:
        rt.sparse_segment_sum(DATA, ids, BAGS)
    assert "indices" in str(caught.value) and ".cpu()" not in str(caught.value)
