"""Compile every kernel for every type, and for float32 in every width, so that no later call has to: `doctor --warm`.

Kernels are compiled by running them: each operator on its worked example, once per type, and again with so many
entries that the call is not a small one. A kernel is compiled for the widest vectors that fit the rows of a table (see
`_kernels/lanes.py`); tables are nearly always float32, so that type is compiled for all of them. Optimizers have
kernels of their own; those that most tables are trained with are compiled, without weight decay and clipping. The
layers of PyTorch and the traced programs of JAX have others, which are compiled where these are installed.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from importlib import import_module, util
from itertools import product
from typing import Any

import numpy as np

from rowgrad import _kernels as kernels
from rowgrad._kernels.kinds import MEAN, SMALL
from rowgrad._ops import OPERATORS, Operator
from rowgrad._ops.attributes import check_attributes
from rowgrad._ops.enlarged import backwards, enlarged, entries, first_accepted, has_rows
from rowgrad._ops.order import LARGE_CALL, order_ids
from rowgrad._ops.results import RowGradient
from rowgrad._runtime import checksums, dtypes, team, text_columns
from rowgrad._runtime.threads import Workers
from rowgrad.errors import InvalidArgumentError
from rowgrad.optim import from_dict
from rowgrad.optim.entries import Fitted
from rowgrad.tables import KeyTable

LARGE = 300_000  # entries of a call that several threads share, where an entry is a number and not a row
WIDTHS = (1, 4, 8, 16, 32, 64)  # columns of float32, one for each width of vectors
USUAL = ("SGD", "Adagrad", "RowWiseAdagrad", "Adam")


def tasks() -> list[tuple[str, Callable[[], Any]]]:
    """What has to run, with a label for each."""
    found: list[tuple[str, Callable[[], Any]]] = []
    for operator in OPERATORS.values():
        for dtype in operator.types.get("T", ("",)):
            found += [(f"{operator.name} {dtype}".strip(), task) for task in _tasks(operator, dtype or None)]
        if any(has_rows(pin) for pin in operator.inputs):
            found += [(f"{operator.name} float32, {width} wide", task)
                      for width in WIDTHS for task in _tasks(operator, "float32", width)]  # fmt: skip
    found += [(f"large gradients {dtype}", partial(_sum_many, dtypes.NUMPY[dtype])) for dtype in dtypes.FLOATS]
    found.append(("large ids", _sort_many))
    found += [(f"SparseFillEmptyRowsGrad {dtype}, no row empty", partial(_take_back, dtypes.NUMPY[dtype]))
              for dtype in OPERATORS["SparseFillEmptyRowsGrad"].types["T"]]  # fmt: skip
    for name in USUAL:
        found += [(f"{name} {dtype}", partial(_optimize, name, dtypes.NUMPY[dtype])) for dtype in dtypes.FLOATS]
        found += [(f"{name} float32, {width} wide", partial(_optimize, name, dtypes.NUMPY["float32"], width))
                  for width in WIDTHS]  # fmt: skip
    found.append(("checksums", partial(checksums.crc32c, bytes(checksums.FEW + 1))))
    found.append(("keys", _keep_keys))
    found += [(f"rows that changed, words of {word} bytes", partial(_compare, word)) for word in (1, 2, 4, 8)]
    found.append(("strings", _read_strings))
    if util.find_spec("torch") is not None:
        found += import_module("rowgrad.torch._warm").tasks(WIDTHS, USUAL)
    if util.find_spec("jax") is not None:
        found += import_module("rowgrad.jax._warm").tasks(WIDTHS)
    return found


def _keep_keys() -> None:
    for kind, keys in (("int64", [1, 2]), ("string", ["a", "b"])):
        table = KeyTable(4, kind)
        table.add(keys)
        table.look_up(keys)
        KeyTable.shard_of(keys, 2)


def _compare(word: int) -> None:
    array = np.zeros(4, f"u{word}")
    rows = np.zeros(1, np.int64)
    kernels.changed_rows.changed_rows(array, array, rows, 4, 2, 4, rows)


def _tasks(operator: Operator, dtype: str | None, width: int | None = None) -> Iterator[Callable[[], Any]]:
    in_rows = any(has_rows(pin) for pin in operator.inputs)
    sizes = [1, 2 * SMALL] if in_rows else [1, 2 * SMALL, LARGE]
    for size in sizes:
        yield partial(_call, operator, size // entries(operator) + 1, dtype, None, width)
    if in_rows and dtype == "float32":  # large calls take ids of 32 bits as they are
        yield partial(_call, operator, LARGE_CALL // entries(operator) + 1, dtype, np.int32, width)
    if not in_rows:
        for size in sizes:
            yield partial(_call_backwards, operator, size // entries(operator) + 1, dtype)


def _call(operator: Operator, repeats: int, dtype: str | None, id_dtype: Any, width: int | None) -> None:
    attributes = check_attributes(operator, dict(operator.example.attributes))
    forms = enlarged(operator, repeats, dtype, id_dtype, width)
    team.ask_again()  # its kernels too, also where other programs use the cores
    form = first_accepted(lambda form: operator(*form.values(), **attributes), forms)
    if repeats > 1 and "out" in operator.options:  # a call whose result has a place is never a small one
        found = operator(*form.values(), **attributes)
        operator(*form.values(), **attributes, out=np.empty_like(found if operator.result is None else found[0]))


def _call_backwards(operator: Operator, repeats: int, dtype: str | None) -> None:
    """With entries in no order, which other kernels take, where the operator allows that."""
    attributes = check_attributes(operator, dict(operator.example.attributes))
    for form in enlarged(operator, repeats, dtype):
        with suppress(InvalidArgumentError):
            operator(*backwards(operator, form).values(), **attributes)
            return


def _sum_many(dtype: "np.dtype[Any]") -> None:
    """What only large gradients need: the factors of many segments, and zeros in memory that is used again."""
    factors = np.empty(1, dtypes.summing(dtype).sums)
    Workers(0).run(kernels.sparse_segment_grad.scales, MEAN, np.ones(1, np.int64), factors)
    ids, grad = np.arange(2 * SMALL), np.zeros((2 * SMALL, 3), dtype)
    OPERATORS["SparseSegmentMeanGrad"](grad, ids, ids, 2 * SMALL, out=np.empty_like(grad))


def _sort_many() -> None:
    """Large calls take ids of either type as they are."""
    for rows, partners in product((np.int64, np.int32), repeat=2):
        order_ids(Workers(0), np.zeros(LARGE_CALL, rows), np.zeros(LARGE_CALL, partners), 1, 1)


def _take_back(dtype: "np.dtype[Any]") -> None:
    """A large fill gradient with few defaults, of which the worked example has many."""
    OPERATORS["SparseFillEmptyRowsGrad"](np.arange(LARGE), np.zeros(LARGE, dtype))


def _optimize(name: str, dtype: "np.dtype[Any]", width: int = 3) -> None:
    """An optimizer with a gradient, without one and by entries, which is how PyTorch's gradients come."""
    ids = np.arange(2 * SMALL)
    table, grad = np.zeros((ids.size, width), dtype), np.zeros((ids.size, width), dtype)
    optimizer = from_dict({"name": name, "lr": 0.0})
    state = optimizer.init(table)
    optimizer.step(table, RowGradient(grad, ids), state)
    optimizer.step_pooled(table, grad, ids, ids, state)
    rule, fitted = optimizer.rule(1), Fitted(optimizer, table, state)
    for ascending in (True, False):
        addresses = ids.ctypes.data, grad.ctypes.data
        fitted.change((rule.token, np.array(rule.numbers)), *addresses, ids.size, ascending=ascending)
    if name == "Adam":
        optimizer.decay_untouched = True
        optimizer.step_pooled(table, grad, ids, ids, state, combiner="sum", weights=np.ones(ids.size, np.float32))


def _read_strings() -> None:
    """Strings that are objects of Python, and those of one width."""
    for kind in (object, "S2"):
        texts = np.array([b"a"] * text_columns.MANY, kind)
        OPERATORS["StringToHashBucketFast"](texts, num_buckets=1)
        OPERATORS["StringToHashBucketStrong"](texts, num_buckets=1, key=[1, 2])
    text_columns.are_text(np.array([b"a"] * text_columns.MANY, object))
    crossed = np.array([[0, 0]]), np.array([b"a"], object), np.array([1, 1])
    OPERATORS["SparseCrossV2"](*([part] for part in crossed), [], b"_")
