"""Results compared with those of a live PyTorch and a live TensorFlow, case by case and by value.

PyTorch's cases are the sample inputs with which it tests `torch.nn.functional.embedding_bag` itself, for every type;
output and gradients are compared. TensorFlow's are the recorded calls of tests/data, which are made again here.
"""

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

import rowgrad

TESTS = Path(__file__).parents[2] / "tests"

# How a case can end; only `different` is a defect.
EQUAL, ROUNDED, REFUSED = "equal to the bit", "equal but for rounding", "refused by both"
DEVIATES, UNDEFINED, DIFFERENT = "deviates as documented", "undefined there", "different"

Outcome = tuple[str, str]  # the name of a case, and how it ended


def pytorch() -> Iterator[Outcome]:
    """`rowgrad.torch.EmbeddingBag` beside `embedding_bag`: outputs, gradients of tables and of weights."""
    import torch

    samples = import_module("torch.testing._internal.common_methods_invocations")
    (cases,) = (op for op in samples.op_db if op.name == "nn.functional.embedding_bag")
    for dtype in sorted(cases.dtypes, key=str):
        for number, sample in enumerate(cases.sample_inputs("cpu", dtype, requires_grad=True)):
            for sparse in (False, True) if sample.kwargs["mode"] != "max" else (False,):  # PyTorch has no sparse max
                yield f"{dtype}/{number}{'/sparse' * sparse}", _same_bags(torch, sample, sparse)


def _same_bags(torch: Any, sample: Any, sparse: bool) -> str:
    ours, theirs = (_bags(torch, sample, sparse, is_ours) for is_ours in (True, False))
    pairs = list(zip(ours, theirs, strict=True))
    if all(torch.equal(one, other) for one, other in pairs):
        return EQUAL
    try:
        for one, other in pairs:
            torch.testing.assert_close(one, other)
    except AssertionError:
        # PyTorch rounds half and bfloat16 after every addition, we once at the end: then ours is the rounded exact sum.
        exact = _bags(torch, sample, sparse, False, torch.float64)
        is_exact = all(torch.equal(one, other.to(one.dtype)) for one, other in zip(ours, exact, strict=True))
        return DEVIATES if is_exact else DIFFERENT
    return ROUNDED


def _bags(torch: Any, sample: Any, sparse: bool, is_ours: bool, dtype: Any = None) -> list[Any]:
    """The output of a sample, and its gradients to the table and to the weights."""
    from rowgrad.torch import EmbeddingBag

    (ids,), settings = sample.args, dict(sample.kwargs)
    offsets, weights = settings.pop("offsets", None), settings.pop("per_sample_weights", None)
    table = sample.input.detach().clone().to(dtype).requires_grad_()
    factors = None if weights is None else weights.detach().clone().to(dtype).requires_grad_()
    if is_ours:
        rows, width = table.shape
        bag = EmbeddingBag(rows, width, _weight=table, sparse=sparse, **settings)
        table = bag.weight
        output = bag(ids, offsets, factors)
    else:
        functional = torch.nn.functional.embedding_bag
        output = functional(ids, table, offsets, per_sample_weights=factors, sparse=sparse, **settings)
    output.backward(torch.arange(1, output.numel() + 1).reshape(output.shape).to(output.dtype))
    return [output.detach(), table.grad.to_dense(), *([] if factors is None else [factors.grad])]


def tensorflow() -> Iterator[Outcome]:
    """`rowgrad.raw_ops` and the look-ups beside TensorFlow's answers of today."""
    sys.path[:0] = [str(TESTS), str(TESTS / "ops")]
    golden, recorder, expected = (import_module(name) for name in ("golden", "record_golden", "test_golden"))
    for line in golden.read_lines()[1]:
        if "undefined" in line:
            yield line["id"], UNDEFINED
            continue
        case = golden.as_case(recorder.record(line))
        answer = _look_up if case.op.startswith("nn.") else expected.call
        try:
            ours: dict[str, Any] | None = answer(case)
        except rowgrad.RowgradError:
            ours = None
        if case.id in expected.DEVIATIONS or case.id == expected.TOO_LARGE_FOR_TENSORFLOW:
            yield case.id, DEVIATES
        elif ours is None or case.out is None:
            yield case.id, REFUSED if ours is None and case.out is None else DIFFERENT
        else:
            yield case.id, _same_results(golden.assert_same, case, ours)


def _look_up(case: Any) -> dict[str, Any]:
    """A look-up of a PyTorch table, and its gradient."""
    import torch

    lookups = import_module("test_lookup")
    table = torch.tensor(case.args["params"], requires_grad=True)
    output = lookups.look_up(case, table, torch.tensor)
    output.backward(torch.tensor(lookups.upstream(output.detach().numpy())))
    return {"output": output.detach().numpy(), "d_params": table.grad.to_dense().numpy()}


def _same_results(assert_same: Callable[..., None], case: Any, ours: dict[str, Any]) -> str:
    if list(ours) != list(case.out):
        return DIFFERENT
    for exactness in ("bits", case.cmp):
        try:
            for name, wanted in case.out.items():
                many = isinstance(wanted, list)
                for want, got in zip(wanted, ours[name], strict=True) if many else [(wanted, ours[name])]:
                    assert_same(want, np.asarray(got), exactness, case.terms)
        except AssertionError:
            continue
        return EQUAL if exactness == "bits" else ROUNDED
    return DIFFERENT


def counted(outcomes: Iterator[Outcome], peer: str) -> dict[str, Any]:
    """How many cases ended in each way, and the names of those that are different; prints how far it is."""
    counts: Counter[str] = Counter()
    different = []
    for number, (name, end) in enumerate(outcomes, 1):
        counts[end] += 1
        if end == DIFFERENT:
            different.append(name)
        if number % 100 == 0:
            print(f"{peer}: {number} cases", flush=True)
    ways = (EQUAL, ROUNDED, REFUSED, DEVIATES, UNDEFINED, DIFFERENT)
    return {"cases": counts.total(), "ended": {way: counts[way] for way in ways}, "different": different}
