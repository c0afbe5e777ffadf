"""The optimizers: their settings, their state, and the numbers that their formulas need."""

from dataclasses import KW_ONLY, dataclass

from rowgrad._kernels import kinds
from rowgrad.errors import InvalidArgumentError
from rowgrad.optim._arguments import LIKE_TABLE, PER_ROW, STEPS, Layout
from rowgrad.optim._base import Optimizer, Rule


@dataclass
class SGD(Optimizer):
    """Gradient descent, plain or with momentum: row −= lr · gradient.

    With momentum, buffer = momentum · buffer + gradient takes the gradient's place (with `nesterov`, gradient +
    momentum · buffer), as in PyTorch with dampening 0. Half and bfloat16 rows are computed in float32 and rounded once.

    Parameters
    ----------
    lr : float
        The learning rate; it may be assigned between steps.
    momentum : float
        The momentum factor; with 0 there is no state, otherwise the state "momentum" has the shape of the table.
    nesterov : bool
        Whether to look ahead by the momentum.
    weight_decay : float
        The weight decay of rows that have a gradient; 0 turns it off.
    weight_decay_mode : {"l2", "decoupled"}
        Whether weight_decay · row is added to the gradient, or lr · weight_decay · row is subtracted from the row.
    decay_untouched : bool
        Whether momentum and weight decay change rows without a gradient too, as in the dense formula. With momentum or
        weight decay, each step is then a pass over the whole table.
    clip_value : float, optional
        The largest magnitude of an element of a gradient; larger ones are clipped.
    clip_norm : float, optional
        The largest Euclidean norm of a row's gradient; larger ones are scaled down to it, after `clip_value`.

    Examples
    --------
    >>> import numpy as np
    >>> import rowgrad
    >>> from rowgrad.optim import SGD
    >>> table = np.zeros((4, 2), np.float32)
    >>> SGD(lr=0.5).step_pooled(table, [[2.0, 4.0]], [1, 3], [0, 0], combiner="mean")
    >>> print(table)
    [[ 0.   0. ]
     [-0.5 -1. ]
     [ 0.   0. ]
     [-0.5 -1. ]]
    """

    lr: float
    _: KW_ONLY
    momentum: float = 0.0
    nesterov: bool = False
    weight_decay_mode: str = "l2"

    def __post_init__(self) -> None:
        if self.nesterov and self.momentum == 0:
            raise InvalidArgumentError(
                "nesterov is True and momentum 0; looking ahead needs a momentum above 0.",
                code="bad-setting",
                argument="nesterov",
                value=True,
            )

    def layout(self) -> Layout:
        return {"momentum": LIKE_TABLE} if self.momentum else {}

    def rule(self, steps: int) -> Rule:
        kind = kinds.DESCENT if not self.momentum else kinds.NESTEROV if self.nesterov else kinds.MOMENTUM
        return self._adjusted(Rule(kind, self.momentum != 0, self.lr, one=self.momentum))


@dataclass
class Adagrad(Optimizer):
    """Adagrad: sum += gradient², row −= lr · gradient / (√sum + eps), element by element.

    Half and bfloat16 rows are computed in float32 and rounded once.

    Parameters
    ----------
    lr : float
        The learning rate; it may be assigned between steps.
    eps : float
        Added to the root. With 0, elements whose sum is 0 become NaN.
    initial_accumulator : float
        The initial value of the sums.
    decay_untouched : bool
        Whether weight decay changes rows without a gradient too, as in the dense formula. With weight decay, each step
        is then a pass over the whole table.
    weight_decay, weight_decay_mode, clip_value, clip_norm
        As for `SGD`.

    Examples
    --------
    >>> import numpy as np
    >>> from rowgrad.optim import Adagrad
    >>> table, adagrad = np.zeros((3, 2), np.float32), Adagrad(lr=0.5)
    >>> state = adagrad.init(table)
    >>> adagrad.step_pooled(table, [[3.0, 4.0]], [1], [0], state, combiner="sum")
    >>> print(table, state["sum"], sep="\\n")
    [[ 0.   0. ]
     [-0.5 -0.5]
     [ 0.   0. ]]
    [[ 0.  0.]
     [ 9. 16.]
     [ 0.  0.]]
    """

    lr: float
    _: KW_ONLY
    eps: float = 1e-10
    initial_accumulator: float = 0.0
    weight_decay_mode: str = "l2"

    def layout(self) -> Layout:
        return {"sum": LIKE_TABLE}

    def rule(self, steps: int) -> Rule:
        return self._adjusted(Rule(kinds.ADAGRAD, False, self.lr, eps=self.eps))


@dataclass
class RowWiseAdagrad(Optimizer):
    """Adagrad with one sum for each row: sum += mean of the row's gradient², row −= lr / (√sum + eps) · gradient.

    The state is as many times smaller than Adagrad's as rows are wide. The formula is that of FBGEMM's
    EXACT_ROWWISE_ADAGRAD. Settings are as those of `Adagrad`.

    Examples
    --------
    >>> import numpy as np
    >>> from rowgrad.optim import RowWiseAdagrad
    >>> table, adagrad = np.zeros((3, 2), np.float32), RowWiseAdagrad(lr=0.5)
    >>> state = adagrad.init(table)
    >>> adagrad.step_pooled(table, [[2.0, 14.0]], [1], [0], state, combiner="sum")
    >>> print(table, state["sum"], sep="\\n")
    [[ 0.   0. ]
     [-0.1 -0.7]
     [ 0.   0. ]]
    [  0. 100.   0.]
    """

    lr: float
    _: KW_ONLY
    eps: float = 1e-8
    initial_accumulator: float = 0.0
    weight_decay_mode: str = "l2"

    def layout(self) -> Layout:
        return {"sum": PER_ROW}

    def rule(self, steps: int) -> Rule:
        return self._adjusted(Rule(kinds.ROW_WISE_ADAGRAD, False, self.lr, eps=self.eps))


@dataclass
class Adam(Optimizer):
    """Adam: m and v are moving averages of gradient and gradient², row −= lr · m̂ / (√v̂ + eps).

    m̂ = m / (1 − betas[0] ** step) and v̂ = v / (1 − betas[1] ** step), with the number of steps of the whole table:
    the averages of rows without a gradient do not change, as in PyTorch's SparseAdam.

    Parameters
    ----------
    lr : float
        The learning rate; it may be assigned between steps.
    betas : (float, float)
        The decay rates of the two averages.
    eps : float
        Added to the root.
    decay_untouched : bool
        Whether rows without a gradient change too, by their decaying averages, as in the dense formula. Each step is
        then a pass over the whole table.
    weight_decay, weight_decay_mode, clip_value, clip_norm
        As for `SGD`.

    Examples
    --------
    >>> import numpy as np
    >>> from rowgrad.optim import Adam
    >>> table, adam = np.zeros((3, 2), np.float32), Adam(lr=0.5)
    >>> state = adam.init(table)
    >>> adam.step_pooled(table, [[3.0, -4.0]], [1], [0], state, combiner="sum")
    >>> print(table, int(state["step"]))
    [[ 0.   0. ]
     [-0.5  0.5]
     [ 0.   0. ]] 1
    """

    lr: float
    _: KW_ONLY
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay_mode: str = "l2"

    def layout(self) -> Layout:
        return {"m": LIKE_TABLE, "v": LIKE_TABLE, "step": STEPS}

    def rule(self, steps: int) -> Rule:
        return self._adjusted(self._moments(kinds.ADAM, steps))

    def _moments(self, kind: int, steps: int) -> Rule:
        """The corrections of both averages are moved into the rate and eps, which are the same for all elements."""
        first, second = self.betas
        root = (1 - second**steps) ** 0.5
        return Rule(kind, True, self.lr * root / (1 - first**steps), one=first, two=second, eps=self.eps * root)


@dataclass
class AdamW(Adam):
    """Adam with a weight decay of its own: row ·= 1 − lr · weight_decay, then as `Adam` without weight decay.

    Settings are as those of `Adam`; rows without a gradient decay only with `decay_untouched`.

    Examples
    --------
    >>> import numpy as np
    >>> from rowgrad.optim import AdamW
    >>> table, adam = np.ones((2, 2), np.float32), AdamW(lr=0.5, weight_decay=0.5)
    >>> state = adam.init(table)
    >>> adam.step_pooled(table, [[3.0, -4.0]], [1], [0], state, combiner="sum")
    >>> print(table)
    [[1.   1.  ]
     [0.25 1.25]]
    """

    weight_decay: float = 0.01
    weight_decay_mode: str = "decoupled"


@dataclass
class PartialRowWiseAdam(Adam):
    """Adam with one second average for each row: v is that of the mean of the row's gradient².

    The state is about half of Adam's. The formula is that of FBGEMM's PARTIAL_ROWWISE_ADAM, whose weight decay is
    decoupled. Settings are as those of `Adam`.

    Examples
    --------
    >>> import numpy as np
    >>> from rowgrad.optim import PartialRowWiseAdam
    >>> table, adam = np.zeros((3, 2), np.float32), PartialRowWiseAdam(lr=0.5)
    >>> state = adam.init(table)
    >>> adam.step_pooled(table, [[2.0, 14.0]], [1], [0], state, combiner="sum")
    >>> print(table, state["v"], sep="\\n")
    [[ 0.   0. ]
     [-0.1 -0.7]
     [ 0.   0. ]]
    [0.  0.1 0. ]
    """

    weight_decay_mode: str = "decoupled"

    def layout(self) -> Layout:
        return {"m": LIKE_TABLE, "v": PER_ROW, "step": STEPS}

    def rule(self, steps: int) -> Rule:
        return self._adjusted(self._moments(kinds.PARTIAL_ROW_WISE_ADAM, steps))


@dataclass
class LAMB(Optimizer):
    """LAMB: Adam's step u = m̂ / (√v̂ + eps) + weight_decay · row, in proportion to the row: row −= lr · ‖row‖ / ‖u‖ · u.

    The norms are those of each row, as in FBGEMM's LAMB. Where one of them is 0, as that of a row of zeros, the step
    is lr · u. Other settings are as those of `Adam`.

    Parameters
    ----------
    lr : float
        The learning rate; it may be assigned between steps.
    betas : (float, float)
        The decay rates of the two averages.
    eps : float
        Added to the root.
    weight_decay : float
        weight_decay · row is added to u.

    Examples
    --------
    >>> import numpy as np
    >>> from rowgrad.optim import LAMB
    >>> table, lamb = np.array([[3, 4], [3, 4]], np.float32), LAMB(lr=0.1)
    >>> state = lamb.init(table)
    >>> lamb.step_pooled(table, [[1.0, 0.0]], [1], [0], state, combiner="sum")
    >>> print(table)
    [[3.  4. ]
     [2.5 4. ]]
    """

    lr: float
    _: KW_ONLY
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8

    def layout(self) -> Layout:
        return {"m": LIKE_TABLE, "v": LIKE_TABLE, "step": STEPS}

    def rule(self, steps: int) -> Rule:
        first, second = self.betas
        root = (1 - second**steps) ** 0.5
        return self._adjusted(Rule(kinds.LAMB, True, self.lr, one=first, two=second, eps=self.eps * root,
                                   correction=root / (1 - first**steps)))  # fmt: skip
