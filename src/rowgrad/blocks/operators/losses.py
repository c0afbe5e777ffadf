"""Losses of classifiers, from the numbers before the activation: so nothing overflows, and no digit is lost."""

from typing import Any

import numpy as np

from rowgrad._ops import checks
from rowgrad._ops.broadcasting import Known, Result, ask, fresh, of_rank, same
from rowgrad._ops.catalogue import Example, Operator
from rowgrad._ops.pins import Pin
from rowgrad._ops.shapes import same_size
from rowgrad._runtime.dtypes import FLOATS, IDS, Array
from rowgrad.blocks.operators.catalogue import declare
from rowgrad.blocks.operators.elementwise import TOO_LARGE, WRONG_TYPE, equal, wide
from rowgrad.blocks.operators.reductions import SUMS_IN_FLOAT32, log_softmax, softmax
from rowgrad.blocks.operators.results import CrossEntropy
from rowgrad.errors import InvalidArgumentError


def _sigmoid_loss(logits: Array, labels: Array) -> Array:
    result = fresh(ask(equal("logits", "labels", "loss"), {"logits": logits, "labels": labels}), logits.dtype)
    x, z = wide(logits), wide(labels)
    with np.errstate(all="ignore"):
        loss = np.maximum(x, 0) - x * z + np.log1p(np.exp(-np.abs(x)))
        np.copyto(result, loss, casting="same_kind")
    return result


def _softmax_loss(features: Array, labels: Array) -> CrossEntropy:
    ask(_per_row, {"features": features, "labels": labels})
    loss, backprop = fresh(features.shape[:1], features.dtype), fresh(features.shape, features.dtype)
    if features.size == 0:
        loss[...] = 0  # no classes, or no rows
        return CrossEntropy(loss, backprop)
    wanted = wide(labels)
    with np.errstate(all="ignore"):
        np.copyto(loss, -(wanted * log_softmax(features)).sum(axis=-1), casting="same_kind")
        np.copyto(backprop, softmax(features) - wanted, casting="same_kind")
    return CrossEntropy(loss, backprop)


def _per_row(shapes: Known, _: Any, __: Any) -> Result:
    features, labels = (of_rank(name, shapes.get(name), 2) for name in ("features", "labels"))
    shape = same(("features", "labels"), features, labels)
    assert shape is not None
    return {"loss": shape[:1], "backprop": shape}


def _sparse_softmax_loss(features: Array, labels: Array) -> CrossEntropy:
    ask(_per_label, {"features": features, "labels": labels})
    rows, classes = features.shape
    wrong = (labels < 0) | (labels >= classes)
    if wrong.any():
        at = int(wrong.argmax())
        raise checks.out_of_range("labels", at, int(labels[at]), classes, "the number of classes", "label-out-of-range",
                                  "Fix the label.")  # fmt: skip
    loss, backprop = fresh((rows,), features.dtype), fresh(features.shape, features.dtype)
    if features.size:
        with np.errstate(all="ignore"):
            np.copyto(loss, -log_softmax(features)[np.arange(rows), labels], casting="same_kind")
            found = softmax(features)
            found[np.arange(rows), labels] -= 1
            np.copyto(backprop, found, casting="same_kind")
    return CrossEntropy(loss, backprop)


def _per_label(shapes: Known, _: Any, __: Any) -> Result:
    rows, classes = of_rank("features", shapes.get("features"), 2)
    (count,) = of_rank("labels", shapes.get("labels"), 1)
    if same_size(rows, count) is False:
        raise InvalidArgumentError(
            f"labels has length {count}, but features has {rows} rows; there must be one for each.",
            code="length-mismatch",
            argument="labels",
            value=count,
        )
    if classes == 0:
        raise InvalidArgumentError("features has no classes; there must be one or more.", code="shape-mismatch",
                                   argument="features", value=(rows, classes))  # fmt: skip
    return {"loss": (rows,), "backprop": (rows, classes)}


# Declarations

declare(Operator(
    name="SigmoidCrossEntropyWithLogits",
    function=None,
    family="losses",
    summary="The loss of each yes-or-no question, from its logit.",
    inputs=(
        Pin("logits", "T", "[...]", "For each question, the number whose sigmoid is the probability of yes."),
        Pin("labels", "T", "[...]", "The answers: 1 for yes, 0 for no, or a probability."),
    ),
    outputs=(Pin("loss", "T", "[...]", "The loss of each question."),),
    types={"T": FLOATS},
    formula="loss = −labels · log(sigmoid(logits)) − (1 − labels) · log(1 − sigmoid(logits))\n"
    "     = max(logits, 0) − logits · labels + log(1 + exp(−|logits|))",
    errors=("InvalidArgumentError: the shapes differ", WRONG_TYPE, TOO_LARGE),
    cost="O(elements).",
    example=Example({"logits": [0.0, 2.0], "labels": [1.0, 1.0]}, {"loss": [0.693147, 0.126928]}),
    compute=_sigmoid_loss,
    shape_rule=equal("logits", "labels", "loss"),
    gradient={
        "logits": lambda op, d_loss, logits, labels: op.Mul(d_loss, op.Sub(op.Sigmoid(logits), labels)),
        "labels": lambda op, d_loss, logits: op.Neg(op.Mul(d_loss, logits)),
    },
    notes="In TensorFlow it is a function, sigmoid_cross_entropy_with_logits, made of graph operators. half and "
    "bfloat16 are worked out in float32 and rounded once.",
))  # fmt: skip


def _loss_to_features(op: Any, d_loss: Any, labels: Any, backprop: Any) -> Any:
    """softmax · total − labels, where total is the sum of a row's labels, without computing the softmax once more."""
    total = op.ReduceSum(labels, [-1], keep_dims=True)
    to_features = op.Add(op.Mul(backprop, total), op.Mul(labels, op.Sub(total, 1)))
    return op.Mul(op.ExpandDims(d_loss, -1), to_features)


def _backprop_to_features(op: Any, d_backprop: Any, features: Any) -> Any:
    flowing = op.ReduceSum(op.Mul(d_backprop, op.Softmax(features)), [-1], keep_dims=True)
    return op.Mul(op.Sub(d_backprop, flowing), op.Softmax(features))


declare(Operator(
    name="SoftmaxCrossEntropyWithLogits",
    function=None,
    family="losses",
    summary="The loss of each row of class scores, and its gradient.",
    inputs=(
        Pin("features", "T", "[batch, classes]", "The scores: their softmax are the probabilities of the classes."),
        Pin("labels", "T", "[batch, classes]", "The true probabilities; each row sums to 1."),
    ),
    outputs=(
        Pin("loss", "T", "[batch]", "The loss of each row."),
        Pin("backprop", "T", "[batch, classes]", "The gradient of each loss with respect to its row of features."),
    ),
    types={"T": FLOATS},
    formula="loss[b] = −Σ over c of labels[b, c] · log(softmax(features[b])[c])\n"
    "backprop = softmax(features) − labels",
    errors=("InvalidArgumentError: features or labels is not a matrix, or their shapes differ", WRONG_TYPE, TOO_LARGE),
    cost="O(elements).",
    example=Example(
        {"features": [[0.0, 2.0]], "labels": [[0.0, 1.0]]},
        {"loss": [0.126928], "backprop": [[0.119203, -0.119203]]},
    ),
    compute=_softmax_loss,
    shape_rule=_per_row,
    gradient={
        "features": (_loss_to_features, _backprop_to_features),
        "labels": (
            lambda op, d_loss, features: op.Neg(op.Mul(op.ExpandDims(d_loss, -1), op.LogSoftmax(features))),
            lambda op, d_backprop: op.Neg(d_backprop),
        ),
    },
    result=CrossEntropy,
    notes="backprop assumes that each row of labels sums to 1, as in TensorFlow; the gradient of the loss does not. "
    "TensorFlow also broadcasts features and labels to each other. " + SUMS_IN_FLOAT32,
))  # fmt: skip

declare(Operator(
    name="SparseSoftmaxCrossEntropyWithLogits",
    function=None,
    family="losses",
    summary="The loss of each row of class scores whose true class is known, and its gradient.",
    inputs=(
        Pin("features", "T", "[batch, classes]", "The scores: their softmax are the probabilities of the classes."),
        Pin("labels", "Tlabels", "[batch]", "The true class of each row."),
    ),
    outputs=(
        Pin("loss", "T", "[batch]", "The loss of each row."),
        Pin("backprop", "T", "[batch, classes]", "The gradient of each loss with respect to its row of features."),
    ),
    types={"T": FLOATS, "Tlabels": IDS},
    formula="loss[b] = −log(softmax(features[b])[labels[b]])\n"
    "backprop = softmax(features), less 1 at the true class of each row",
    errors=(
        "InvalidArgumentError: features is not a matrix or has no classes, labels is not a vector, or lengths differ",
        "OutOfRangeError: a label is not in [0, classes)",
        WRONG_TYPE,
        TOO_LARGE,
    ),
    cost="O(elements).",
    example=Example(
        {"features": [[0.0, 2.0]], "labels": [1]}, {"loss": [0.126928], "backprop": [[0.119203, -0.119203]]}
    ),
    compute=_sparse_softmax_loss,
    shape_rule=_per_label,
    gradient={
        "features": (
            lambda op, d_loss, backprop: op.Mul(op.ExpandDims(d_loss, -1), backprop),
            _backprop_to_features,
        ),
    },
    result=CrossEntropy,
    notes=SUMS_IN_FLOAT32,
))  # fmt: skip
