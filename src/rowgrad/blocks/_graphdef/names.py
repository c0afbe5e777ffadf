"""The table of operators: what each of the catalogue is called in TensorFlow's graphs.

Most are called the same, take their inputs in the same order and name their types alike; `SAME` lists those. The
others say what differs. What TensorFlow has no single operator for is in `recipes`.
"""

from collections.abc import Mapping
from typing import NamedTuple

from rowgrad._ops.tensors_map import MAPS
from rowgrad.blocks.operators import BLOCKS
from rowgrad.blocks.operators.optimizers import OPTIMIZERS


class GraphOp(NamedTuple):
    """A graph operator.

    `inputs` are pins of the catalogue in TensorFlow's order, `types` TensorFlow's type attributes with the catalogue's
    type variables, `attributes` those that both call the same. `refused` are attributes that must have this value, or
    the operator means something else.
    """

    op: str
    inputs: tuple[str, ...]
    types: Mapping[str, str]
    attributes: tuple[str, ...] = ()
    counted: str = ""  # the attribute that counts the arrays of pins that take many, all equally many
    lists: Mapping[str, str] = {}  # else, for each such pin, the attribute that counts its arrays or lists their types
    refused: Mapping[str, object] = {}


# TensorFlow's other optimizers, each for whole variables and for rows.
OPTIMIZER_STEPS = tuple(f"{form}{name}" for name in OPTIMIZERS for form in ("Apply", "SparseApply"))
SAME = (
    "SparseSegmentSum", "SparseSegmentSumWithNumSegments", "SparseSegmentMean", "SparseSegmentMeanWithNumSegments",
    "SparseSegmentSqrtN", "SparseSegmentSqrtNWithNumSegments", "SparseSegmentSumGrad", "SparseSegmentSumGradV2",
    "SparseSegmentMeanGrad", "SparseSegmentMeanGradV2", "SparseSegmentSqrtNGrad", "SparseSegmentSqrtNGradV2",
    "SparseFillEmptyRows", "SparseFillEmptyRowsGrad", "RaggedFillEmptyRows", "RaggedFillEmptyRowsGrad", "SparseSlice",
    "SparseSliceGrad", "Identity", "Neg", "Square", "Sqrt", "Exp", "Log", "Relu", "ReluGrad", "Sigmoid", "Tanh",
    "ZerosLike", "OnesLike", "Sub", "Mul", "SquaredDifference", "Cast", "AddN", "Shape", "Size", "Reshape",
    "Transpose", "InvertPermutation", "ExpandDims", "BroadcastTo", "BroadcastGradientArgs", "Slice", "Pad", "Range",
    "GatherNd", "ScatterNd", "Softmax", "LogSoftmax", "MatMul", "SoftmaxCrossEntropyWithLogits", "SparseToDense",
    "SegmentSum", "SegmentSumV2", "SegmentMean", "SegmentProd", "SegmentProdV2", "SegmentMax", "SegmentMaxV2",
    "SegmentMin", "SegmentMinV2", "UnsortedSegmentSum", "UnsortedSegmentProd", "UnsortedSegmentMax",
    "UnsortedSegmentMin", "SparseReorder", "SparseReshape",
    "SparseReduceSum", "SparseReduceSumSparse", "SparseReduceMax", "SparseReduceMaxSparse", "SparseConcat",
    "SparseAdd", "SparseAddGrad", "SparseSparseMaximum", "SparseSparseMinimum", "SparseSoftmax", "SparseTensorDenseAdd",
    "SparseDenseCwiseAdd", "SparseDenseCwiseMul", "SparseDenseCwiseDiv",
    "SparseSoftmaxCrossEntropyWithLogits", "SparseBincount", "DenseCountSparseOutput", "SparseCountSparseOutput",
    "SparseTensorDenseMatMul", "Assign", "ApplyGradientDescent", "ApplyAdagrad", "ApplyAdam", "SparseApplyAdagrad",
    *OPTIMIZER_STEPS, "StringToHashBucketFast", "StringToHashBucket", "UnsortedSegmentJoin", "RaggedRange",
    "RaggedBincount", "RaggedCountSparseOutput", "SerializeSparse", "SerializeManySparse", "DeserializeSparse",
    "DeserializeManySparse", *MAPS,
    "Equal", "NotEqual", "Less", "LessEqual", "Greater", "GreaterEqual", "LogicalAnd", "LogicalOr", "LogicalNot",
    "SelectV2", "Maximum", "Minimum", "ArgMax", "ArgMin", "IsFinite", "Abs", "Sign",
    "Floor", "Ceil", "Rint", "Log1p", "Expm1", "OneHot", "Fill", "ClipByValue", "StopGradient",
    "StatelessRandomUniform", "StatelessRandomNormal",
    "StridedSlice", "StridedSliceGrad", "Pack", "Squeeze", "Tile", "Cumsum", "Where", "Unique", "UniqueWithCounts",
    "Bincount", "Bucketize", "Pow", "Rsqrt", "Round", "CheckNumerics",
)  # fmt: skip
# What takes lists of arrays of several types, or of several lengths, with the attribute that counts the others.
WITH_LISTS = {
    "StringToHashBucketStrong": "", "SparseCross": "N", "SparseCrossV2": "N", "SparseCrossHashed": "N",
    "RaggedCross": "Nsparse", "RaggedTensorToSparse": "RAGGED_RANK",
    "RaggedTensorToTensor": "num_row_partition_tensors", "Print": "U", "Assert": "T",
}  # fmt: skip
CALLED = {"ReduceSum": "Sum", "ReduceMean": "Mean", "ReduceMax": "Max", "ReduceMin": "Min", "ReduceAll": "All",
          "ReduceAny": "Any", "Concat": "ConcatV2", "Gather": "GatherV2", "Add": "AddV2",
          "Div": "RealDiv"}  # fmt: skip
# What TensorFlow's graphs do not need: hints, and what GatherV2 has not.
HINTS = ("validate_indices", "grad_a", "grad_b", "every")
# Attributes that graphs call otherwise.
ATTRIBUTE_NAMES = {("Squeeze", "axis"): "squeeze_dims"}
# Operators that give all parts at once, where a block gives one: the pins, the attribute that says which, the output,
# and the attribute that counts the parts, if there is one.
PARTS = {
    "ConcatOffset": (("axis", "shapes"), "position", "offset", ""),
    "Split": (("split_dim", "value"), "index", "output", "num_split"),
    "Unpack": (("value",), "index", "output", "num"),
}
TYPE_NAMES = {"Tseg": "Tsegmentids", "Tnum": "Tnumsegments"}
REFUSED: dict[str, dict[str, object]] = {
    "GatherV2": {"batch_dims": 0},
    "BiasAdd": {"data_format": b"NHWC"},
}


def _entry(name: str) -> GraphOp:
    operator = BLOCKS[name]
    op = CALLED.get(name, name)
    dtypes = {attribute.name for attribute in operator.attributes if attribute.kind == "dtype"}
    lists = {pin.name: pin.dtype if pin.dtype.endswith("_types") else WITH_LISTS[name]
             for pin in operator.inputs if pin.many and name in WITH_LISTS}  # fmt: skip
    used = dict.fromkeys(
        pin.dtype for pin in operator.inputs if pin.dtype in operator.types and pin.dtype not in lists.values()
    )
    return GraphOp(
        op,
        tuple(pin.name for pin in operator.inputs),
        {TYPE_NAMES.get(variable, variable): variable for variable in used if variable not in dtypes},
        tuple(attribute.name for attribute in operator.attributes if attribute.name not in HINTS),
        "N" if any(pin.many for pin in operator.inputs) and not lists else "",
        lists,
        REFUSED.get(op, {}),
    )


# By the names of the catalogue.
GRAPH_OPS = {name: _entry(name) for name in (*SAME, *WITH_LISTS, *CALLED)}

# Whole numbers are divided by another operator, and graphs of others may have older or narrower forms.
INTEGER_DIV = "Div"
_OTHER_NAMES = {
    "Add": "Add", "Div": "Div", "TruncateDiv": "Div", "Snapshot": "Identity",
    "PreventGradient": "Identity", "ResourceApplyGradientDescent": "ApplyGradientDescent",
    "ResourceApplyAdagrad": "ApplyAdagrad", "ResourceApplyAdam": "ApplyAdam",
    "ResourceSparseApplyAdagrad": "SparseApplyAdagrad", "AssignVariableOp": "Assign", "BiasAdd": "Add",
    "Concat": "Concat", "Gather": "Gather",
    **{f"Resource{name}": name for name in OPTIMIZER_STEPS},
}  # fmt: skip


def _known() -> dict[str, tuple[str, GraphOp]]:
    known = {entry.op: (name, entry) for name, entry in GRAPH_OPS.items()}
    for op, name in _OTHER_NAMES.items():
        known[op] = (name, GRAPH_OPS[name]._replace(op=op, refused=REFUSED.get(op, {})))
    for op, inputs in {"Concat": ("axis", "values")}.items():  # another order
        name, entry = known[op]
        known[op] = (name, entry._replace(inputs=inputs))
    return known


# By TensorFlow's names: the operator of the catalogue, and how its inputs and attributes are read.
KNOWN = _known()
