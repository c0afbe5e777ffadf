"""What the adversary attacks: every operator of the catalogue, every optimizer, and PyTorch's layers if it is there.

Arguments are made from the catalogue: an operator's worked example is enlarged (`rowgrad._ops.enlarged`), so a new
operator is attacked without a line written for it.
"""

import itertools
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from importlib import util
from typing import Any

import numpy as np

from rowgrad import optim
from rowgrad._ops import Operator
from rowgrad._ops.attributes import check_attributes
from rowgrad._ops.enlarged import enlarged, first_accepted
from rowgrad._ops.results import RowGradient
from rowgrad.blocks.operators import OPERATORS

Array = np.ndarray[Any, Any]

# A small call, one that sorts, and one that several threads share.
REPEATS = (1, 40, 8000)
HOME = os.getpid()
# Sizes of the results of pages' operators are no addresses, and results that take most of the memory are no mistake.
SIZES = ("shape", "dims")
CALLS = itertools.count()  # that were made; threads may count at the same time


@dataclass(frozen=True)
class Target:
    """A call: `run` takes the arguments by name. `ids` are those that kernels use as addresses; some are lists."""

    name: str
    args: Mapping[str, Any]
    ids: tuple[str, ...]
    run: Callable[..., Any]
    takes_out: bool = False

    def fresh(self) -> dict[str, Any]:
        """The arguments, each array in memory of its own."""
        return {name: _copy(value) for name, value in self.args.items()}

    def arrays(self, name: str, args: Mapping[str, Any] | None = None) -> list[Array]:
        """The arrays of one argument: itself, or those that it lists; of the target's own arguments unless told."""
        value = (self.args if args is None else args)[name]
        return [part for part in (value if isinstance(value, list) else [value]) if isinstance(part, np.ndarray)]

    def results(self, args: Mapping[str, Any] | None = None, **options: Any) -> list[Array]:
        """All that the call gives, as arrays."""
        next(CALLS)
        found = self.run(**(self.fresh() if args is None else args), **options)
        return [np.asarray(part) for part in found] if isinstance(found, tuple) else [np.asarray(found)]


def check(target: Target, found: list[Array], expected: list[Array], when: str) -> None:
    """The same bits."""
    assert len(found) == len(expected), f"{target.name}: {len(found)} results {when}"
    for one, other in zip(found, expected, strict=True):
        same = one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
        same = same or (one.dtype.kind == "O" and one.tolist() == other.tolist())
        assert same, f"{target.name}: wrong result {when}"


def _copy(value: Any) -> Any:
    if isinstance(value, list):
        return [_copy(part) for part in value]
    return np.array(value) if isinstance(value, np.ndarray) else value


def plans(pattern: str = "", id_dtype: Any = np.int64) -> list[tuple[str, Callable[[], Target]]]:
    """All calls whose name contains `pattern`: their names, and what makes them, which takes a while."""
    found: list[tuple[str, Callable[[], Target]]] = [
        (f"{operator.name} x{repeats}", partial(of_operator, operator, repeats, id_dtype))
        for operator in OPERATORS.values()
        if operator.role == "operator"
        for repeats in (REPEATS if operator.function else REPEATS[:2])
    ]
    found += [(f"{name}.{method} x{repeats}", partial(_of_optimizer, name, method == "step_pooled", repeats))
              for name in OPTIMIZERS for method in ("step", "step_pooled") for repeats in REPEATS]  # fmt: skip
    if util.find_spec("torch") is not None:
        found += [(f"{title} {name} x{repeats}", partial(make, name, repeats, id_dtype))
                  for title, make in (("EmbeddingBag", _of_layer), ("EmbeddingBagCollection", _of_collection))
                  for name in (None, *OPTIMIZERS) for repeats in REPEATS]  # fmt: skip
    return [(name, make) for name, make in found if pattern.casefold() in name.casefold()]


def targets(pattern: str = "", id_dtype: Any = np.int64) -> Iterator[Target]:
    """All calls whose name contains `pattern`."""
    return (make() for _, make in plans(pattern, id_dtype))


def of_operator(operator: Operator, repeats: int, id_dtype: Any = np.int64) -> Target:
    """The worked example, each element so many times."""
    attributes = check_attributes(operator, dict(operator.example.attributes))

    def run(out: Any = None, **given: Any) -> Any:
        options = attributes if out is None else attributes | {"out": out}
        return operator(*(given[pin.name] for pin in operator.inputs), **options)

    args = first_accepted(lambda form: run(**form), _forms(operator, repeats, id_dtype))
    ids = tuple(
        fitter.pin.name
        for fitter in operator.fitters
        if fitter.is_ids
        and (fitter.pin.many or np.ndim(args[fitter.pin.name]))
        and (operator.module == "raw_ops" or fitter.pin.name not in SIZES)
    )
    return Target(f"{operator.name} x{repeats}", args, ids, run, "out" in operator.options)


def _forms(operator: Operator, repeats: int, id_dtype: Any) -> Iterator[dict[str, Any]]:
    """The forms of `enlarged`; before them, where an operator takes lists of arrays, those with these enlarged too.

    Splits of rows then count each entry so many times: all of a list, or, where lists are nested, the innermost.
    """
    usual = list(enlarged(operator, repeats, id_dtype=id_dtype))
    if any(pin.many for pin in operator.inputs):
        (plain, *_) = enlarged(operator, 1, id_dtype=id_dtype)
        for is_nested in (False, True):
            form = dict(plain)
            for pin in operator.inputs:
                value = form[pin.name]
                if pin.shape.startswith("[N"):
                    repeat = partial(np.repeat, repeats=repeats, axis=0)
                    form[pin.name] = list(map(repeat, value)) if pin.many else repeat(value)
                elif pin.many and pin.shape == "[R]":
                    kept = len(value) - 1 if is_nested else 0
                    form[pin.name] = [*value[:kept], *(part * repeats for part in value[kept:])]
            yield form
    yield from usual


OPTIMIZERS = [name for name in optim.__all__ if isinstance(getattr(optim, name), type)
              and issubclass(getattr(optim, name), optim.Optimizer) and name != "Optimizer"]  # fmt: skip


def _of_optimizer(name: str, pooled: bool, repeats: int) -> Target:
    """A step on a new table, by a compact gradient, or by the gradient of pooled rows."""
    optimizer = getattr(optim, name)(lr=0.1)
    rows = 7 * repeats
    grad = np.ones((rows, 3), np.float32)

    def step(indices: Array) -> Array:
        table = np.ones((rows, 3), np.float32)
        optimizer.step(table, RowGradient(grad, indices), optimizer.init(table))
        return table

    def step_pooled(indices: Array, segment_ids: Array) -> Array:
        table = np.ones((rows, 3), np.float32)
        optimizer.step_pooled(table, grad, indices, segment_ids, optimizer.init(table), combiner="mean")
        return table

    if not pooled:
        return Target(f"{name}.step x{repeats}", {"indices": np.arange(rows)}, ("indices",), step)
    ids = {"indices": np.arange(rows) // 2, "segment_ids": np.arange(rows) // 3}
    return Target(f"{name}.step_pooled x{repeats}", ids, tuple(ids), step_pooled)


def _of_layer(name: str | None, repeats: int, id_dtype: Any) -> Target:
    """A forward and a backward pass of a new layer, which makes a sparse gradient or a fused step."""
    import torch

    from rowgrad.torch import EmbeddingBag

    rows, fused = 7 * repeats, None if name is None else getattr(optim, name)(lr=0.1)

    @torch.enable_grad()  # a signal handler may come where it is not
    def train(ids: Array, offsets: Array) -> tuple[Array, ...]:
        _quieten_child(torch)
        bag = EmbeddingBag(rows, 3, mode="mean", sparse=fused is None, fused_optimizer=fused,
                           _weight=torch.ones(rows, 3))  # fmt: skip
        pooled = bag(torch.from_numpy(ids), torch.from_numpy(offsets))
        pooled.backward(torch.ones_like(pooled))
        return pooled.detach().numpy(), *_after_step(bag.weight)

    ids = {"ids": (np.arange(2 * rows) % rows).astype(id_dtype), "offsets": np.arange(0, 2 * rows, 4, dtype=id_dtype)}
    return Target(f"EmbeddingBag {name} x{repeats}", ids, tuple(ids), train)


def _of_collection(name: str | None, repeats: int, id_dtype: Any) -> Target:
    """The same of a collection of two tables, one of which has two features."""
    import torch

    from rowgrad.torch import EmbeddingBagCollection, EmbeddingBagConfig

    rows, fused = 7 * repeats, None if name is None else getattr(optim, name)(lr=0.1)
    # PyTorch's random numbers have a lock, which a fork in another thread would leave closed.
    tables = [
        EmbeddingBagConfig(name=each, num_embeddings=rows, embedding_dim=width, feature_names=features,
                           init_fn=torch.nn.init.ones_)
        for each, width, features in (("one", 3, ["a", "b"]), ("two", 16, ["c"]))
    ]  # fmt: skip

    @torch.enable_grad()
    def train(values: Array, offsets: Array) -> tuple[Array, ...]:
        _quieten_child(torch)
        bags = EmbeddingBagCollection(tables, fused_optimizer=fused, **({} if fused else {"sparse": True}))
        pooled = bags.pool(torch.from_numpy(values), torch.from_numpy(offsets))
        pooled.backward(torch.ones_like(pooled))
        return pooled.detach().numpy(), *(part for weight in bags.parameters() for part in _after_step(weight))

    ids = {"values": (np.arange(3 * rows) % rows).astype(id_dtype),
           "offsets": np.arange(0, 3 * rows + 1, 7, dtype=id_dtype)}  # fmt: skip
    return Target(f"EmbeddingBagCollection {name} x{repeats}", ids, tuple(ids), train)


def _quieten_child(torch: Any) -> None:
    """Do as data loaders do: in a forked child, operators of PyTorch itself wait for threads that do not exist."""
    if os.getpid() != HOME:
        torch.set_num_threads(1)


def _after_step(weight: Any) -> list[Array]:
    """The table that a fused step has changed, or the rows of its sparse gradient."""
    if weight.grad is None:
        return [weight.detach().numpy()]
    grad = weight.grad.coalesce()
    return [grad.indices().numpy(), grad.values().numpy()]
