"""Blocks that TensorFlow has no single operator for, as small graphs.

A recipe is used both ways: an export writes its nodes, an import recognises them by their structure alone, whatever
they are called, so that the graphs that TensorFlow itself makes of its functions are recognised too.

In a recipe, ``$pin`` is what is at an input pin, ``@pin`` the variable there, ``part`` and ``part:1`` are outputs of
other parts, and a number is a constant. The part that is called "" is the block itself.
"""

from collections.abc import Mapping
from typing import NamedTuple


class Part(NamedTuple):
    """One node: its operator, its inputs, and its attributes (the names of type variables, or plain values)."""

    op: str
    inputs: tuple[str | int, ...]
    attributes: Mapping[str, object] = {"T": "T"}
    controls: tuple[str, ...] = ()


ROWS = {"Tparams": "T", "Tindices": "Tindices", "Taxis": "int32", "batch_dims": 0}
SCATTER = {"T": "T", "Tindices": "Tindices", "use_locking": True}
IDS = {"T": "Tindices"}

RECIPES: dict[str, dict[str, Part]] = {
    # What tf.nn.sigmoid_cross_entropy_with_logits makes.
    "SigmoidCrossEntropyWithLogits": {
        "zeros_like": Part("ZerosLike", ("$logits",)),
        "GreaterEqual": Part("GreaterEqual", ("$logits", "zeros_like")),
        "Select": Part("Select", ("GreaterEqual", "$logits", "zeros_like")),
        "Neg": Part("Neg", ("$logits",)),
        "Select_1": Part("Select", ("GreaterEqual", "Neg", "$logits")),
        "mul": Part("Mul", ("$logits", "$labels")),
        "sub": Part("Sub", ("Select", "mul")),
        "Exp": Part("Exp", ("Select_1",)),
        "Log1p": Part("Log1p", ("Exp",)),
        "": Part("AddV2", ("sub", "Log1p")),
    },
    # What TensorFlow's optimizer does with rows.
    "SparseApplyGradientDescent": {
        "mul": Part("Mul", ("$alpha", "$grad")),
        "": Part("ScatterSub", ("@var", "$indices", "mul"), SCATTER),
    },
    # A row that occurs twice would be changed once only, so Reshape refuses what Unique makes shorter.
    "SparseApplyAdam": {
        "unique": Part("Unique", ("$indices",), {"T": "Tindices", "out_idx": "int32"}),
        "shape": Part("Shape", ("$indices",), {"T": "Tindices", "out_type": "int32"}),
        "rows": Part("Reshape", ("unique", "shape"), {"T": "Tindices", "Tshape": "int32"}),
        "left2": Part("Sub", (1, "$beta2_power")),
        "root2": Part("Sqrt", ("left2",)),
        "scaled": Part("Mul", ("$lr", "root2")),
        "left1": Part("Sub", (1, "$beta1_power")),
        "rate": Part("RealDiv", ("scaled", "left1")),
        "m_rows": Part("GatherV2", ("$m", "rows", 0), ROWS),
        "m_diff": Part("Sub", ("$grad", "m_rows")),
        "m_new": Part("Sub", (1, "$beta1")),
        "m_step": Part("Mul", ("m_diff", "m_new")),
        "m_next": Part("AddV2", ("m_rows", "m_step")),
        "v_rows": Part("GatherV2", ("$v", "rows", 0), ROWS),
        "square": Part("Mul", ("$grad", "$grad")),
        "v_diff": Part("Sub", ("square", "v_rows")),
        "v_new": Part("Sub", (1, "$beta2")),
        "v_step": Part("Mul", ("v_diff", "v_new")),
        "v_next": Part("AddV2", ("v_rows", "v_step")),
        "var_rows": Part("GatherV2", ("$var", "rows", 0), ROWS),
        "direction": Part("Mul", ("m_next", "rate")),
        "root": Part("Sqrt", ("v_next",)),
        "divisor": Part("AddV2", ("root", "$epsilon")),
        "step": Part("RealDiv", ("direction", "divisor")),
        "var_next": Part("Sub", ("var_rows", "step")),
        "m_update": Part("ScatterUpdate", ("@m", "rows", "m_next"), SCATTER),
        "v_update": Part("ScatterUpdate", ("@v", "rows", "v_next"), SCATTER),
        "": Part("ScatterUpdate", ("@var", "rows", "var_next"), SCATTER, ("m_update", "v_update")),
    },
}  # fmt: skip
