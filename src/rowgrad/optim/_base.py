"""What all optimizers share: how a table, its state and a gradient go through the kernels."""

import sys
from collections.abc import Mapping
from dataclasses import KW_ONLY, asdict, dataclass, fields
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rowgrad import _kernels as kernels
from rowgrad._kernels.kinds import LAMB, SMALL
from rowgrad._ops import OPERATORS, checks, combiners
from rowgrad._ops.order import Order, one_id_type, order_ids
from rowgrad._ops.pins import Input, Pin
from rowgrad._ops.results import RowGradient
from rowgrad._ops.row_sums import Factors, check_pairs, diagnose, factors_of, sort_pairs, sum_few
from rowgrad._runtime import arrays, dtypes
from rowgrad._runtime.memory import allocate
from rowgrad._runtime.threads import Workers
from rowgrad.errors import DTypeError, InvalidArgumentError
from rowgrad.optim._arguments import (
    LIKE_TABLE,
    STEPS,
    Layout,
    State,
    Target,
    bad_row,
    check_apart,
    check_gradient,
    fit_state,
    fit_table,
)
from rowgrad.optim._settings import CHECKS

if TYPE_CHECKING:
    from rowgrad._ops.plan import Plan
    from rowgrad._runtime.dtypes import Array

_WEIGHTS = Input(Pin("weights", "Tw", "[N]", "The factor of each entry."), dtypes.FLOATS)


class Rule(NamedTuple):
    """One step's formula: which optimizer, whether it changes rows without a gradient, and its numbers."""

    kind: int
    reaches: bool
    rate: float
    decay: float = 0.0
    shrink: float = 1.0
    one: float = 0.0
    two: float = 0.0
    eps: float = 0.0
    correction: float = 1.0
    clip_value: float = inf
    clip_norm: float = inf

    @property
    def token(self) -> "Array":
        """What chooses the formula of a kernel when it is compiled."""
        clipped = self.clip_value < inf or self.clip_norm < inf
        decayed = self.shrink != 1 or (self.decay != 0 and self.kind != LAMB)
        found: Array = kernels.formulas.rule_for(self.kind, clipped or decayed)
        return found

    @property
    def numbers(self) -> tuple[float, ...]:
        """As the kernels take them."""
        return (self.rate, self.decay, self.shrink, self.one, 1 - self.one, self.two, 1 - self.two, self.eps,
                self.correction, self.clip_value, self.clip_norm)  # fmt: skip


class _Step(NamedTuple):
    """All that one step needs beside the gradient: checked, and not changed yet."""

    target: Target
    state: "dict[str, Array]"
    values: Mapping[str, Any]
    rule: Rule

    @property
    def memory(self) -> "tuple[Array, Array]":
        """The two arrays of state that kernels write, without elements where there is none."""
        flat = [array.reshape(-1) for name, array in self.state.items() if name != "step"]
        nothing = np.empty(0, dtypes.summing(self.target.array.dtype).sums)
        first, second = (*flat, nothing, nothing)[:2]
        return first, second

    @property
    def lanes(self) -> "Array":
        """How wide the vectors are that rows are changed by."""
        found: Array = kernels.lanes.lanes_for(dtypes.summing(self.target.array.dtype).sums, self.target.width)
        return found

    def done(self) -> None:
        """Count the step, and tell PyTorch, which has not seen the writes, that its tensors have changed."""
        if "step" in self.state:
            self.state["step"][...] += 1
        if self.target.kind is arrays.TORCH:
            torch = sys.modules["torch"]
            for tensor in (self.target.value, *self.values.values()):
                if not tensor.is_inference():
                    torch.autograd.graph.increment_version(tensor)


_SETTINGS: dict[Any, tuple[str, ...]] = {}


def _settings(optimizer: type[Any]) -> tuple[str, ...]:
    """The names of an optimizer's settings; needed each time that one is assigned, so they are kept."""
    names = _SETTINGS.get(optimizer)
    if names is None:
        names = _SETTINGS[optimizer] = tuple(field.name for field in fields(optimizer))
    return names


@dataclass
class Optimizer:
    """Base class of the optimizers. Settings are checked when they are assigned.

    Attributes
    ----------
    lr : float
        The learning rate; it may be assigned between steps.
    weight_decay : float
        The weight decay of rows that have a gradient.
    decay_untouched : bool
        Whether rows without a gradient change as well, by weight decay and by their state.
    clip_value : float, optional
        The largest magnitude of an element of a gradient.
    clip_norm : float, optional
        The largest Euclidean norm of a row's gradient.
    """

    lr: float
    _: KW_ONLY
    weight_decay: float = 0.0
    decay_untouched: bool = False
    clip_value: float | None = None
    clip_norm: float | None = None

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in _settings(type(self)):
            raise AttributeError(f"{type(self).__name__} has no setting {name!r}")
        super().__setattr__(name, CHECKS[name](name, value))

    @classmethod
    def settings(cls) -> list[str]:
        """The names of the settings."""
        return list(_settings(cls))

    def as_dict(self) -> dict[str, Any]:
        """Return the name and all settings, ready for JSON; `rowgrad.optim.from_dict` is the inverse.

        Examples
        --------
        >>> from rowgrad.optim import SGD
        >>> SGD(lr=0.1).as_dict()["name"]
        'SGD'
        """
        settings = asdict(self)
        return {"name": type(self).__name__} | {
            name: list(value) if isinstance(value, tuple) else value for name, value in settings.items()
        }

    def layout(self) -> Layout:
        """The state arrays of a table, by name, in the order that the kernels expect."""
        raise NotImplementedError

    def starts(self) -> dict[str, float]:
        """The initial values of state arrays that do not start as 0."""
        return dict.fromkeys(self.layout(), getattr(self, "initial_accumulator", 0.0))

    def rule(self, steps: int) -> Rule:
        """The formula of step number `steps`, counted from 1."""
        raise NotImplementedError

    def _adjusted(self, rule: Rule) -> Rule:
        """The rule with weight decay and clipping."""
        decay, shrink = self.weight_decay, 1.0
        if getattr(self, "weight_decay_mode", "l2") == "decoupled":
            decay, shrink = 0.0, 1 - self.lr * self.weight_decay
        return rule._replace(
            reaches=rule.reaches or self.weight_decay != 0,
            decay=decay,
            shrink=shrink,
            clip_value=inf if self.clip_value is None else self.clip_value,
            clip_norm=inf if self.clip_norm is None else self.clip_norm,
        )

    def init(self, table: Any) -> State:
        """Return the state for a new table: arrays of the table's kind (NumPy or PyTorch), float32 for 16-bit tables.

        Raises `DTypeError` if the table is of a type that cannot be trained or written to.
        """
        target, starts = fit_table(table), self.starts()
        state: State = {}
        for name, shape in self.layout().items():
            size, dtype = target.wanted(shape)
            array = np.zeros((), dtype) if shape == STEPS else allocate(size, dtype, argument="table", zero=True)
            start = starts.get(name, 0.0)
            if start and shape != STEPS:
                array[...] = start
            state[name] = target.kind.hand_back(array)
        return state

    def step(self, table: Any, gradient: RowGradient, state: State | None = None) -> None:
        """Update the rows of `table` with a compact gradient.

        Parameters
        ----------
        table : NumPy array or PyTorch tensor, shape [rows, ...], float
            Changed in place, as is the state.
        gradient : RowGradient
            As returned by `sparse_segment_…_grad_v2`.
        state : dict, optional
            The result of `init`; not needed if the optimizer has no state.

        Raises
        ------
        InvalidArgumentError
            The gradient's rows do not ascend, shapes differ, the state is missing or of another optimizer, or arrays
            share memory.
        OutOfRangeError
            A row is not in the table.
        DTypeError
            Types differ, or a type is not listed. After an error nothing has been changed.
        """
        if not isinstance(gradient, RowGradient):
            raise DTypeError(
                f"gradient is a {type(gradient).__name__}; pass a RowGradient, as compact gradients are.",
                code="wrong-dtype",
                argument="gradient",
                value=type(gradient).__name__,
            )
        step = self._begin(table, state)
        fitters = OPERATORS["SparseSegmentSumGradV2"].fitters
        grads, rows = fitters[0].fit(gradient.output), fitters[1].fit(gradient.sorted_unique_indices)
        checks.rank("sorted_unique_indices", rows, 1)
        checks.at_least_vector("output", grads)
        checks.same_length("output", grads.shape[0], "sorted_unique_indices", rows.size)
        target = step.target.array
        check_gradient(step.target, grads)
        check_apart(step.target, step.state, {"the gradient": grads, "its rows": rows})
        if rows.size and not target.size:
            _check_rows(rows, target.shape[0])
        elif rows.size:
            bad = _change(step, grads, rows)
            if bad >= 0:
                raise bad_row(rows, bad, target.shape[0])
        self._change_others(step, rows.astype(np.int64, copy=False), 0)
        step.done()

    def step_pooled(self, table: Any, grad: Any, indices: Any, segment_ids: Any, state: State | None = None, *,
                    combiner: str = "mean", weights: Any = None, plan: "Plan | None" = None) -> None:  # fmt: skip
        """Update the rows of `table` with the gradient of its pooled look-up, without computing the compact gradient.

        Equals `step` with `sparse_segment_…_grad_v2(grad, indices, segment_ids, len(table))`, bit for bit for float32
        and float64; for half and bfloat16 the sums are not rounded in between.

        Parameters
        ----------
        table : NumPy array or PyTorch tensor, shape [rows, ...], float
            Changed in place, as is the state.
        grad : shape [S, ...]
            The gradient of each segment's pooled row.
        indices, segment_ids : int32 or int64, shape [N]
            The table row and the segment of each entry.
        state : dict, optional
            The result of `init`; not needed if the optimizer has no state.
        combiner : {"sum", "mean", "sqrtn"}
            How segments were pooled.
        weights : float, shape [N], optional
            The factor of each entry; only with ``combiner="sum"``. The gradient is then that of
            `sparse_segment_weighted_sum_grad_v2`.
        plan : Plan, optional
            As in `sparse_segment_…_grad_v2`; then `indices` and `segment_ids` may be None. With `weights` it
            gives the ids, but they are sorted again.

        Raises
        ------
        InvalidArgumentError, OutOfRangeError, DTypeError
            As `step`, and as the gradient would. After an error nothing has been changed.
        """
        combiners.check(combiner)
        if weights is not None and combiner != "sum":
            raise InvalidArgumentError(
                f"weights are factors as they are, and combiner is {combiner!r}. Pass combiner='sum', and weights that "
                "are divided already.",
                code="bad-combiner",
                argument="weights",
            )
        step = self._begin(table, state)
        target = step.target.array
        operator = OPERATORS["SparseSegmentMeanGradV2"]
        if plan is not None:
            _, indices, segment_ids, _ = plan.complete(operator, (grad, indices, segment_ids, 0))
        grads, rows, segments = (
            fitter.fit(value) for fitter, value in zip(operator.fitters, (grad, indices, segment_ids), strict=False)
        )
        check_pairs(grads, rows, segments, "rows", target.shape[0])
        check_gradient(step.target, grads)
        factors = None if weights is None else _fit_weights(weights, rows, grads)
        read = {"grad": grads, "indices": rows, "segment_ids": segments, "weights": factors}
        check_apart(step.target, step.state, {name: array for name, array in read.items() if array is not None})
        kind = combiners.COMBINERS[combiner].kind
        few = None
        if 0 < rows.size <= SMALL and target.size and factors is None and plan is None and target.dtype.itemsize > 2:
            few = sum_few(kind, grads, rows, segments, target.shape[0], "rows of the table")
        if few is not None:
            # Few rows: making their gradient first takes fewer calls. (Of half types it would have to be rounded.)
            _change(step, few.output, few.sorted_unique_indices)
            self._change_others(step, few.sorted_unique_indices.astype(np.int64, copy=False), 0)
        elif rows.size and target.size:
            pairs = _sort(kind, grads, rows, segments, factors, target.shape[0], plan)
            stored, sums, _ = dtypes.summing(target.dtype)
            block = kernels.optim.BLOCK * pairs.workers.chunks
            pairs.workers.run(
                kernels.optim.change_pooled, None, pairs.order.words.size, target.shape[0], pairs.order.words,
                pairs.order.shift, grads.reshape(-1).view(stored), step.target.width, *pairs.factors, step.rule.token,
                np.array(step.rule.numbers), step.lanes, np.empty(0, stored), target.reshape(-1).view(stored),
                *step.memory, np.empty(block * step.target.width, sums), np.empty(block, np.int64), pairs.sources, None,
            )  # fmt: skip
            self._change_others(step, pairs.order.words, pairs.order.shift)
        else:
            self._change_others(step, rows[:0].astype(np.int64), 0)
        step.done()

    def _begin(self, table: Any, state: State | None) -> _Step:
        target = fit_table(table)
        fitted = fit_state(type(self).__name__, self.layout(), state, target)
        steps = int(fitted["step"]) if "step" in fitted else 0
        return _Step(target, fitted, state or {}, self.rule(steps + 1))

    def _change_others(self, step: _Step, words: "Array", shift: int) -> None:
        """Where the dense formula is wanted, change the rows that are not among those of the sorted `words`."""
        target = step.target.array
        if not (self.decay_untouched and step.rule.reaches and target.size):
            return
        stored, sums, _ = dtypes.summing(target.dtype)
        like_table = list(self.layout().values()).count(LIKE_TABLE)
        Workers(target.nbytes * (2 + 2 * like_table)).run(
            kernels.optim.change_others, words, shift, target.shape[0], step.target.width, step.rule.token,
            step.rule.numbers, step.lanes, np.zeros(step.target.width, sums), target.reshape(-1).view(stored),
            *step.memory,
        )  # fmt: skip


def _change(step: _Step, grads: "Array", rows: "Array") -> int:
    """Change the rows of the table that a compact gradient has; gives the first that is wrong, or -1."""
    target = step.target.array
    stored = dtypes.summing(target.dtype).stored
    workers = Workers(2 * grads.nbytes)
    return workers.run(  # type: ignore[no-any-return]
        kernels.optim.change, *one_id_type(rows), rows.size, target.shape[0], grads.reshape(-1).view(stored),
        step.target.width, step.rule.token, np.array(step.rule.numbers), step.lanes, np.empty(0, stored),
        target.reshape(-1).view(stored), *step.memory, np.empty(workers.chunks, np.int64),
    )  # fmt: skip


class _Pairs(NamedTuple):
    """The sorted entries of a pooled look-up: whose factor counts, and where each entry's gradient is."""

    workers: Workers
    order: Order
    factors: Factors
    sources: "tuple[Array, int] | None"


def _sort(kind: int, grads: "Array", rows: "Array", segments: "Array", weights: "Array | None", limit: int,
          plan: "Plan | None") -> _Pairs:  # fmt: skip
    sources = None
    if weights is None:
        workers, order = sort_pairs(kind, grads, rows, segments, limit, "rows of the table", plan)
        factors = factors_of(workers, kind, order, grads.dtype)
    else:
        if plan is not None:
            plan.check("rows of the table", limit, "grad", grads.shape[0])
        workers = Workers(rows.size * (16 + grads.nbytes // max(grads.shape[0], 1)))
        (sources_of,) = one_id_type(segments)
        outside = workers.run(
            kernels.weighted_sum.first_outside, sources_of, grads.shape[0], np.empty(workers.chunks, np.int64)
        )
        order = order_ids(workers, rows, None, limit, rows.size)
        wrong = [position for position in (outside, order.bad) if position >= 0]
        if wrong:
            raise diagnose(min(wrong), rows, segments, limit, "rows of the table", grads.shape[0],
                           "the number of rows of grad")  # fmt: skip
        factors = Factors(weights, 0, (1 << order.shift) - 1)
        sources = (sources_of, grads.shape[0])
    if order.row_names is not None:
        raise InvalidArgumentError("table and grad have too many rows for one pass.", code="too-large")
    return _Pairs(workers, order, factors, sources)


def _fit_weights(weights: Any, rows: "Array", grads: "Array") -> "Array":
    """The weights in the type that sums are made in, so that one kernel serves all types of weights."""
    fitted = _WEIGHTS.fit(weights)
    checks.rank("weights", fitted, 1)
    checks.same_length("weights", fitted.size, "indices", rows.size)
    with np.errstate(over="ignore"):
        factors: Array = fitted.astype(dtypes.summing(grads.dtype).sums, copy=False)
    return factors


def _check_rows(rows: "Array", limit: int) -> None:
    """The same checks as the kernel's, for a table without elements."""
    wrong = (rows < 0) | (rows >= limit)
    wrong[1:] |= rows[1:] <= rows[:-1]
    if wrong.any():
        raise bad_row(rows, int(wrong.argmax()), limit)
