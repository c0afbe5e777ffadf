"""The optimizers whose steps are those of TensorFlow's SparseApply… operators, to the bit: FTRL and its relatives.

`Adagrad` with its eps is TensorFlow's AdagradV2 to the bit as well, and stands with the others in `_rules`.
"""

from dataclasses import KW_ONLY, dataclass

from rowgrad._kernels import kinds
from rowgrad.optim._arguments import LIKE_TABLE, STEPS, TWO_ROWS, Layout
from rowgrad.optim._base import Optimizer, Rule


@dataclass
class FTRL(Optimizer):
    """FTRL-Proximal, which sets weights to 0 that do not matter: the optimizer of wide, linear models.

    Element by element, where p is −lr_power::

        linear += gradient + 2 · l2_shrinkage · row − ((sum + gradient²)^p − sum^p) / lr · row
        sum += gradient²
        row = (clip(linear, −l1, l1) − linear) / (sum^p / lr + 2 · l2)

    A step equals TensorFlow's SparseApplyFtrl and SparseApplyFtrlV2 to the bit; with another `lr_power` than −0.5
    powers may differ in the last place.

    Parameters
    ----------
    lr : float
        The learning rate; it may be assigned between steps.
    l1, l2 : float
        The strengths of the two regularisations.
    l2_shrinkage : float
        A second L2 regularisation, of the loss itself rather than of the steps.
    beta : float
        beta / (2 · lr) is added to l2, as Keras and the paper have it.
    lr_power : float
        How the learning rate falls, 0 or less; −0.5 is a root.
    initial_accumulator : float
        The initial value of the sums.
    weight_decay : float
        weight_decay · row is added to gradients before anything else.
    decay_untouched : bool
        Whether rows without a gradient change as well: the dense formula, in a pass over the whole table.
    clip_value, clip_norm
        As for `SGD`.

    Examples
    --------
    >>> import numpy as np
    >>> from rowgrad.optim import FTRL
    >>> table, ftrl = np.zeros((3, 2), np.float32), FTRL(lr=0.5, l1=1.0, initial_accumulator=0.0)
    >>> state = ftrl.init(table)
    >>> ftrl.step_pooled(table, [[2.0, 0.5]], [1], [0], state, combiner="sum")
    >>> print(table, state["linear"], sep="\\n")
    [[ 0.    0.  ]
     [-0.25  0.  ]
     [ 0.    0.  ]]
    [[0.  0. ]
     [2.  0.5]
     [0.  0. ]]
    """

    lr: float
    _: KW_ONLY
    l1: float = 0.0
    l2: float = 0.0
    l2_shrinkage: float = 0.0
    beta: float = 0.0
    lr_power: float = -0.5
    initial_accumulator: float = 0.1

    def layout(self) -> Layout:
        return {"sum": LIKE_TABLE, "linear": LIKE_TABLE}

    def starts(self) -> dict[str, float]:
        return {"sum": self.initial_accumulator}

    def rule(self, steps: int) -> Rule:
        kind = kinds.FTRL if self.lr_power == -0.5 else kinds.FTRL_POWER
        l2 = self.l2 + self.beta / (2 * self.lr) if self.beta else self.l2
        return self._adjusted(Rule(kind, True, self.lr, one=self.l1, two=l2, eps=self.l2_shrinkage,
                                   correction=self.lr_power))  # fmt: skip


@dataclass
class Momentum(Optimizer):
    """Momentum: m = momentum · m + gradient, row −= lr · m; SparseApplyMomentum bit for bit.

    With `nesterov`, row −= lr · gradient + lr · momentum · m. `SGD` with momentum is the same except for the order of
    operations, which is PyTorch's. Other settings are as those of `FTRL`.

    Parameters
    ----------
    lr : float
        The learning rate; it may be assigned between steps.
    momentum : float
        The momentum factor.
    nesterov : bool
        Whether to look ahead by the momentum.

    Examples
    --------
    >>> import numpy as np
    >>> from rowgrad.optim import Momentum
    >>> table, optimizer = np.zeros((2, 1), np.float32), Momentum(lr=0.5, momentum=0.5)
    >>> state = optimizer.init(table)
    >>> for _ in range(2):
    ...     optimizer.step_pooled(table, [[1.0]], [1], [0], state, combiner="sum")
    >>> print(table.ravel())
    [ 0.   -1.25]
    """

    lr: float
    _: KW_ONLY
    momentum: float = 0.9
    nesterov: bool = False

    def layout(self) -> Layout:
        return {"momentum": LIKE_TABLE}

    def rule(self, steps: int) -> Rule:
        kind = kinds.TF_NESTEROV if self.nesterov else kinds.TF_MOMENTUM
        return self._adjusted(Rule(kind, True, self.lr, one=self.momentum))


@dataclass
class RMSprop(Optimizer):
    """RMSProp: ms is a moving average of gradient², row −= lr · gradient / √(ms + eps).

    With `centered`, mg is a moving average of the gradient, and mg² is subtracted from ms under the root. With
    momentum, the update is momentum · the previous update + the step. Results are those of SparseApplyRMSProp and
    SparseApplyCenteredRMSProp, to the bit for rows of up to 3 elements; for longer rows TensorFlow uses the processor's
    approximate reciprocal square root. Other settings are as those of `FTRL`.

    Parameters
    ----------
    lr : float
        The learning rate; it may be assigned between steps.
    rho : float
        The decay rate of the averages.
    momentum : float
        The momentum factor; with 0 there is no momentum state.
    eps : float
        Added under the root.
    centered : bool
        Whether gradients are divided by their standard deviation rather than their size.

    Examples
    --------
    >>> import numpy as np
    >>> from rowgrad.optim import RMSprop
    >>> table, optimizer = np.zeros((2, 1), np.float32), RMSprop(lr=0.5, rho=0.75, eps=0.0)
    >>> state = optimizer.init(table)
    >>> optimizer.step_pooled(table, [[2.0]], [1], [0], state, combiner="sum")
    >>> print(table.ravel(), state["ms"].ravel())
    [ 0. -1.] [0. 1.]
    """

    lr: float
    _: KW_ONLY
    rho: float = 0.9
    momentum: float = 0.0
    eps: float = 1e-7
    centered: bool = False

    def layout(self) -> Layout:
        if self.centered and self.momentum:
            return {"mg": LIKE_TABLE, "ms_momentum": TWO_ROWS}
        mean: Layout = {"mg": LIKE_TABLE} if self.centered else {}
        return mean | {"ms": LIKE_TABLE} | ({"momentum": LIKE_TABLE} if self.momentum else {})

    def rule(self, steps: int) -> Rule:
        plain, with_momentum = (
            (kinds.CENTRED, kinds.CENTRED_MOMENTUM) if self.centered else (kinds.RMSPROP, kinds.RMSPROP_MOMENTUM)
        )
        kind = with_momentum if self.momentum else plain
        return self._adjusted(Rule(kind, True, self.lr, one=self.momentum, two=self.rho, eps=self.eps))


@dataclass
class Adadelta(Optimizer):
    """Adadelta: row −= lr · √(steps + eps) / √(squares + eps) · gradient, with moving averages of both squares.

    Results are those of SparseApplyAdadelta, to the bit for rows of up to 3 elements; for longer rows TensorFlow uses
    the processor's approximate reciprocal square root. Other settings are as those of `FTRL`.

    Parameters
    ----------
    lr : float
        The learning rate; it may be assigned between steps.
    rho : float
        The decay rate of the averages.
    eps : float
        Added under both roots.

    Examples
    --------
    >>> import numpy as np
    >>> from rowgrad.optim import Adadelta
    >>> table, optimizer = np.zeros((2, 1), np.float32), Adadelta(lr=1.0, rho=0.5, eps=1.0)
    >>> state = optimizer.init(table)
    >>> optimizer.step_pooled(table, [[2.0]], [1], [0], state, combiner="sum")
    >>> print(table.ravel(), state["squares"].ravel())
    [ 0.        -1.1547005] [0. 2.]
    """

    lr: float
    _: KW_ONLY
    rho: float = 0.95
    eps: float = 1e-7

    def layout(self) -> Layout:
        return {"squares": LIKE_TABLE, "steps": LIKE_TABLE}

    def rule(self, steps: int) -> Rule:
        return self._adjusted(Rule(kinds.ADADELTA, True, self.lr, two=self.rho, eps=self.eps))


@dataclass
class AdagradDA(Optimizer):
    """Adagrad with dual averaging: a row is a function of the sums of its gradients and of their squares.

    With the number of the step t, ``row = −sign(sum) · max(|sum| / t − l1, 0) / (l2 + √squares / (t · lr))``, the bits
    of SparseApplyAdagradDA. The first step of a row forgets its initial value. Other settings are as those of `FTRL`.

    Parameters
    ----------
    lr : float
        The learning rate; it may be assigned between steps.
    l1, l2 : float
        The strengths of the two regularisations.
    initial_accumulator : float
        The initial value of the sums of squares.

    Examples
    --------
    >>> import numpy as np
    >>> from rowgrad.optim import AdagradDA
    >>> table, optimizer = np.zeros((2, 1), np.float32), AdagradDA(lr=0.5, l1=1.0, initial_accumulator=0.0)
    >>> state = optimizer.init(table)
    >>> optimizer.step_pooled(table, [[2.0]], [1], [0], state, combiner="sum")
    >>> print(table.ravel())
    [ 0.   -0.25]
    """

    lr: float
    _: KW_ONLY
    l1: float = 0.0
    l2: float = 0.0
    initial_accumulator: float = 0.1

    def layout(self) -> Layout:
        return {"sum": LIKE_TABLE, "squares": LIKE_TABLE, "step": STEPS}

    def starts(self) -> dict[str, float]:
        return {"squares": self.initial_accumulator}

    def rule(self, steps: int) -> Rule:
        return self._adjusted(
            Rule(kinds.ADAGRAD_DA, True, self.lr, one=self.l1, two=self.l2, correction=float(steps))
        )  # fmt: skip


@dataclass
class ProximalAdagrad(Optimizer):
    """Adagrad with a proximal step: row −= rate · gradient with rate = lr / √sum, then l1 and l2 shrink the row.

    ``row = sign(row) · max(|row| − rate · l1, 0) / (1 + rate · l2)``. Results are those of SparseApplyProximalAdagrad,
    to the bit for rows of up to 3 elements; for longer rows TensorFlow uses the processor's approximate reciprocal
    square root. Other settings are as those of `FTRL`.

    Parameters
    ----------
    lr : float
        The learning rate; it may be assigned between steps.
    l1, l2 : float
        The strengths of the two regularisations.
    initial_accumulator : float
        The initial value of the sums.

    Examples
    --------
    >>> import numpy as np
    >>> from rowgrad.optim import ProximalAdagrad
    >>> table, optimizer = np.zeros((2, 1), np.float32), ProximalAdagrad(lr=0.5, l1=0.5, initial_accumulator=0.0)
    >>> state = optimizer.init(table)
    >>> optimizer.step_pooled(table, [[2.0]], [1], [0], state, combiner="sum")
    >>> print(table.ravel())
    [ 0.    -0.375]
    """

    lr: float
    _: KW_ONLY
    l1: float = 0.0
    l2: float = 0.0
    initial_accumulator: float = 0.1

    def layout(self) -> Layout:
        return {"sum": LIKE_TABLE}

    def rule(self, steps: int) -> Rule:
        return self._adjusted(Rule(kinds.PROXIMAL_ADAGRAD, True, self.lr, one=self.l1, two=self.l2))


@dataclass
class ProximalSGD(Optimizer):
    """Gradient descent with a proximal step: row −= lr · gradient, then l1 and l2 shrink the row.

    ``row = sign(row) · max(|row| − lr · l1, 0) / (1 + lr · l2)``, the bits of SparseApplyProximalGradientDescent. Other
    settings are as those of `FTRL`.

    Parameters
    ----------
    lr : float
        The learning rate; it may be assigned between steps.
    l1, l2 : float
        The strengths of the two regularisations.

    Examples
    --------
    >>> import numpy as np
    >>> from rowgrad.optim import ProximalSGD
    >>> table, optimizer = np.zeros((2, 1), np.float32), ProximalSGD(lr=0.5, l1=0.5)
    >>> optimizer.step_pooled(table, [[2.0]], [1], [0], combiner="sum")
    >>> print(table.ravel())
    [ 0.   -0.75]
    """

    lr: float
    _: KW_ONLY
    l1: float = 0.0
    l2: float = 0.0

    def layout(self) -> Layout:
        return {}

    def rule(self, steps: int) -> Rule:
        return self._adjusted(Rule(kinds.PROXIMAL_DESCENT, True, self.lr, one=self.l1, two=self.l2))
