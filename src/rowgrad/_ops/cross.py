"""Crossed features: for each row of a batch, every combination of one feature of each column, as a hash or as text.

A column is a sparse tensor, a ragged one or a matrix, of whole numbers or text. The hashes are TensorFlow's to the bit:
those of SparseCross and RaggedCross begin with hash_key and take whole numbers as they are, those of SparseCrossHashed
hash features first, of whole numbers in sparse columns the low four bytes, and not those in dense columns, as
TensorFlow does.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from rowgrad import _kernels as kernels
from rowgrad._ops import checks, hashing
from rowgrad._ops.catalogue import REQUIRED, Attribute, Example, Operator, declare
from rowgrad._ops.pins import INT64_MAX, Pin
from rowgrad._ops.results import CrossedFeatures, CrossedRows
from rowgrad._runtime.dtypes import IDS, Array
from rowgrad._runtime.memory import allocate
from rowgrad._runtime.text_columns import TextColumn, column_of, make_bytes
from rowgrad._runtime.threads import Workers
from rowgrad.errors import InvalidArgumentError


class Column(NamedTuple):
    """The features of one column, and where those of each row begin and end."""

    name: str
    values: Array
    begins: Array
    ends: Array
    is_dense: bool = False


# Columns of the three kinds


def of_sparse(names: Sequence[str], indices: Array, values: Array, shape: Array, *, strict: bool = True) -> Column:
    """A sparse matrix. As in TensorFlow, entries after one that is out of order are lost where `strict`."""
    index_name, value_name, shape_name = names
    checks.rank(index_name, indices, 2)
    checks.rank(value_name, values, 1)
    checks.rank(shape_name, shape, 1)
    checks.same_length(value_name, values.size, index_name, indices.shape[0])
    if indices.shape[1] != 2 or shape.size != 2:
        raise InvalidArgumentError(
            f"{index_name} has {indices.shape[1]} columns, and {shape_name} {shape.size} elements; features are "
            "crossed in matrices, so both must be 2.",
            code="wrong-rank",
            argument=index_name,
            value=indices.shape,
        )
    rows = indices[:, 0].copy()
    batch = checks.not_negative(shape_name, shape, 0)
    begins, ends = allocate((2, batch), np.int64, argument=shape_name)  # before anything else: it may be too much
    if strict and rows.size:
        falls = np.concatenate([rows[:1] < 0, rows[1:] < rows[:-1]])
        rows = rows[: int(falls.argmax())] if falls.any() else rows
    else:
        rows = np.maximum.accumulate(np.maximum(rows, 0))
    counts = np.bincount(rows[: int(np.searchsorted(rows, batch))], minlength=batch)
    np.cumsum(counts, out=ends)
    np.subtract(ends, counts, out=begins)
    return Column(value_name, values, begins, ends)


def of_dense(name: str, values: Array) -> Column:
    """A matrix: all features of a row."""
    checks.rank(name, values, 2)
    rows, width = values.shape
    begins = np.arange(rows, dtype=np.int64) * width
    return Column(name, values.reshape(-1), begins, begins + width, is_dense=True)


def of_ragged(names: Sequence[str], values: Array, row_splits: Array) -> Column:
    """A ragged matrix."""
    value_name, splits_name = names
    checks.rank(value_name, values, 1)
    checks.rank(splits_name, row_splits, 1)
    splits = row_splits.astype(np.int64)
    wrong = splits.size == 0 or splits[0] != 0 or splits[-1] != values.size or (np.diff(splits) < 0).any()
    if wrong:
        raise InvalidArgumentError(
            f"{splits_name} must begin with 0, not decrease, and end with the {values.size} values of {value_name}. "
            "Pass the row splits of these values.",
            code="bad-offsets",
            argument=splits_name,
        )
    return Column(value_name, values, splits[:-1], splits[1:])


class Batch(NamedTuple):
    """All columns, side by side: where the features of each row begin, how many there are, and of the crosses."""

    columns: list[Column]
    rows: int
    firsts: Array
    counts: Array
    offsets: Array

    @property
    def crosses(self) -> int:
        return int(self.offsets[-1])


def batch_of(columns: list[Column]) -> Batch:
    rows = columns[0].begins.size if columns else 0
    for column in columns:
        checks.same_length(f"the rows of {column.name}", column.begins.size, "the batch", rows)
    sizes = np.cumsum([0, *(column.values.size for column in columns)])
    firsts = np.array([column.begins + at for column, at in zip(columns, sizes, strict=False)], np.int64).reshape(-1)
    counts = np.array([column.ends - column.begins for column in columns], np.int64).reshape(len(columns), rows)
    offsets = np.zeros(rows + 1, np.int64)
    if columns:
        if rows and float(np.prod(counts, axis=0, dtype=np.float64).sum()) > INT64_MAX / 16:
            raise InvalidArgumentError("there are more crosses than can be counted.", code="too-large")
        np.cumsum(np.prod(counts, axis=0), out=offsets[1:])
    return Batch(columns, rows, firsts, counts.reshape(-1), offsets)


def _hashed(batch: Batch, features: list[Array], seed: int | None, buckets: int) -> Array:
    output = allocate(batch.crosses, np.int64)
    if output.size:
        joined = np.concatenate([part.view(np.uint64) for part in features])
        Workers(16 * output.size).run(
            kernels.crossing.cross_hashes, batch.rows, len(features), joined, batch.firsts, batch.counts, batch.offsets,
            np.uint64((seed or 0) % 2**64), seed is not None, np.uint64(buckets if buckets > 0 else INT64_MAX), output,
        )  # fmt: skip
    return output


def _as_text(values: Array, name: str) -> TextColumn:
    if values.dtype.kind != "i":
        return column_of(values, name)
    digits = allocate(values.size * kernels.crossing.DIGITS, np.uint8)
    begins, ends = allocate(values.size, np.int64), allocate(values.size, np.int64)
    Workers(digits.nbytes).run(kernels.crossing.write_numbers, values, digits, begins, ends)
    return TextColumn(digits, begins, ends)


def _holds_str(array: Array) -> bool:
    """Whether text is `str`, not `bytes`."""
    return array.dtype.kind in "UT" or (array.dtype.kind == "O" and array.size > 0 and isinstance(array.flat[0], str))


def _joined(batch: Batch, texts: list[TextColumn], separator: bytes, other_text: tuple[Array, ...] = ()) -> Array:
    """The crosses as text: objects that are `bytes`, as TensorFlow gives strings, or `str` where all text is."""
    given = [array for array in (*(column.values for column in batch.columns), *other_text) if array.dtype.kind != "i"]
    is_str = bool(given) and all(map(_holds_str, given))
    if not batch.crosses:
        return np.empty(0, str if is_str else object)
    places = allocate((batch.crosses, len(texts)), np.int64)
    workers = Workers(places.nbytes)
    workers.run(kernels.crossing.cross_places, batch.rows, len(texts), batch.firsts, batch.counts, batch.offsets,
                places.reshape(-1))  # fmt: skip
    data, begins, ends = _behind_one_another(texts)
    offsets = np.zeros(batch.crosses + 1, np.int64)
    workers.run(kernels.crossing.joined_ends, batch.crosses, len(texts), places.reshape(-1), begins, ends,
                len(separator), offsets)  # fmt: skip
    between = np.frombuffer(bytearray(separator), np.uint8)
    if is_str:
        width = max(int(offsets.max()), 1)
        points = allocate((batch.crosses, width), np.uint32)
        if workers.run(kernels.crossing.joined_points, batch.crosses, len(texts), places.reshape(-1), data, begins,
                       ends, between, width, points.reshape(-1), np.empty(workers.chunks, np.int64)):  # fmt: skip
            return points.view(f"U{width}").reshape(-1)
    np.cumsum(offsets, out=offsets)
    written = allocate(int(offsets[-1]), np.uint8)
    workers.run(kernels.crossing.joined_bytes, batch.crosses, len(texts), places.reshape(-1), data, begins, ends,
                between, offsets, written)  # fmt: skip
    output = np.empty(batch.crosses, object)
    if not make_bytes(output, written, 1, offsets):
        whole = written.tobytes()
        output[:] = [whole[begin:end] for begin, end in pairwise(offsets.tolist())]
    return np.array([item.decode() for item in output], str) if is_str else output


def _behind_one_another(texts: list[TextColumn]) -> tuple[Array, Array, Array]:
    """The columns as one: its bytes, and where each string begins and ends, bounded."""
    if len(texts) == 1 and texts[0].begins.dtype == np.int64:
        data, begins, ends = texts[0]
    else:
        shifts = np.cumsum([0, *(text.data.size for text in texts)])
        data = np.concatenate([text.data for text in texts])
        begins, ends = (np.concatenate([getattr(text, side) + shift
                                        for text, shift in zip(texts, shifts, strict=False)], dtype=np.int64)
                        for side in ("begins", "ends"))  # fmt: skip
    begins = np.clip(begins, 0, data.size)
    return data, begins, np.clip(ends, begins, data.size)


def _features(column: Column) -> Array:
    """Whole numbers as they are, fingerprints of text."""
    if column.values.dtype.kind == "i":
        return column.values.view(np.uint64)
    return hashing.hash_column(column_of(column.values, column.name), hashing.FAST)


def cross_values(batch: Batch, *, text: bool, num_buckets: int, hash_key: int) -> Array:
    """The crosses of SparseCross and RaggedCross."""
    hashing.check_buckets(num_buckets, 0)
    if not text:
        return _hashed(batch, [_features(column) for column in batch.columns], hash_key, num_buckets)
    return _joined(batch, [_as_text(column.values, column.name) for column in batch.columns], b"_X_")


def crossed(batch: Batch, values: Array) -> CrossedFeatures:
    """The crosses as a sparse tensor."""
    indices = allocate((batch.crosses, 2), np.int64)
    if indices.size:
        Workers(indices.nbytes).run(kernels.crossing.cross_indices, batch.rows, batch.offsets, indices.reshape(-1))
    widest = int(np.diff(batch.offsets).max(initial=0))
    return CrossedFeatures(indices, values, np.array([batch.rows, widest], np.int64))


Arrays = tuple[Array, ...]


def _columns(indices: Arrays, values: Arrays, shapes: Arrays, dense_inputs: Arrays) -> Batch:
    checks.same_length("values", len(values), "indices", len(indices))
    checks.same_length("shapes", len(shapes), "indices", len(indices))
    found = [
        of_sparse([f"{name}[{at}]" for name in ("indices", "values", "shapes")], *parts)
        for at, parts in enumerate(zip(indices, values, shapes, strict=True))
    ]
    found += [of_dense(f"dense_inputs[{at}]", matrix) for at, matrix in enumerate(dense_inputs)]
    return batch_of(found)


def _sparse_cross(indices: Arrays, values: Arrays, shapes: Arrays, dense_inputs: Arrays, *, hashed_output: bool,
                  num_buckets: int, hash_key: int, out_type: str, internal_type: str) -> CrossedFeatures:  # fmt: skip
    batch = _columns(indices, values, shapes, dense_inputs)
    for column in batch.columns if internal_type == "string" else ():
        if column.values.dtype.kind == "i":
            raise InvalidArgumentError(
                f"{column.name} has whole numbers, but internal_type is string. Pass internal_type='int64'.",
                code="wrong-dtype",
                argument=column.name.partition("[")[0],
            )
    found = cross_values(batch, text=out_type == "string", num_buckets=num_buckets, hash_key=hash_key)
    return crossed(batch, found)


def _sparse_cross_v2(
    indices: Arrays, values: Arrays, shapes: Arrays, dense_inputs: Arrays, sep: Array
) -> CrossedFeatures:
    checks.rank("sep", sep, 0)
    between = sep[()]
    batch = _columns(indices, values, shapes, dense_inputs)
    texts = [_as_text(column.values, column.name) for column in batch.columns]
    separator = between if isinstance(between, bytes) else str(between).encode()
    return crossed(batch, _joined(batch, texts, separator, (sep,)))


def _sparse_cross_hashed(indices: Arrays, values: Arrays, shapes: Arrays, dense_inputs: Arrays, num_buckets: Any,
                         strong_hash: Array, salt: Array) -> CrossedFeatures:  # fmt: skip
    checks.rank("strong_hash", strong_hash, 0)
    checks.rank("salt", salt, 1)
    checks.same_length("salt", salt.size, "a key", 2)
    buckets = checks.count("num_buckets", num_buckets, None)
    batch = _columns(indices, values, shapes, dense_inputs)
    key = (int(salt[0]), int(salt[1])) if strong_hash else None
    kind = hashing.STRONG if strong_hash else hashing.FAST
    features = []
    for column in batch.columns:
        if column.values.dtype.kind != "i":
            features.append(hashing.hash_column(column_of(column.values, column.name), kind, 0, key))
        elif column.is_dense and not strong_hash:
            features.append(column.values.view(np.uint64))
        else:  # TensorFlow's process ends where dense whole numbers are to be hashed with a key
            features.append(hashing.hash_numbers(column.values, kind, key))
    return crossed(batch, _hashed(batch, features, None, buckets))


def _ragged_cross(ragged_values: Arrays, ragged_row_splits: Arrays, sparse_indices: Arrays, sparse_values: Arrays,
                  sparse_shape: Arrays, dense_inputs: Arrays, *, input_order: str, hashed_output: bool,
                  num_buckets: int, hash_key: int, out_values_type: str, out_row_splits_type: str
                  ) -> CrossedRows:  # fmt: skip
    checks.same_length("ragged_row_splits", len(ragged_row_splits), "ragged_values", len(ragged_values))
    checks.same_length("sparse_values", len(sparse_values), "sparse_indices", len(sparse_indices))
    checks.same_length("sparse_shape", len(sparse_shape), "sparse_indices", len(sparse_indices))
    kinds = {
        "R": [of_ragged((f"ragged_values[{at}]", f"ragged_row_splits[{at}]"), *parts)
              for at, parts in enumerate(zip(ragged_values, ragged_row_splits, strict=True))],
        "S": [of_sparse([f"{name}[{at}]" for name in ("sparse_indices", "sparse_values", "sparse_shape")], *parts,
                        strict=False)
              for at, parts in enumerate(zip(sparse_indices, sparse_values, sparse_shape, strict=True))],
        "D": [of_dense(f"dense_inputs[{at}]", matrix) for at, matrix in enumerate(dense_inputs)],
    }  # fmt: skip
    if any(input_order.count(kind) != len(found) for kind, found in kinds.items()) or set(input_order) - set(kinds):
        raise InvalidArgumentError(
            f"input_order is {input_order!r}; it must have an R for each ragged, an S for each sparse and a D for each "
            "dense input.",
            code="wrong-attribute",
            argument="input_order",
            value=input_order,
        )
    left = {kind: iter(found) for kind, found in kinds.items()}
    batch = batch_of([next(left[kind]) for kind in input_order])
    found = cross_values(batch, text=out_values_type == "string", num_buckets=num_buckets, hash_key=hash_key)
    return CrossedRows(found, batch.offsets.astype(out_row_splits_type))


# Declarations

FEATURES = ("int64", "string")
# What TensorFlow's functions take where no key is given.
DEFAULT_HASH_KEY = 0xDECAFCAFFE
INDICES = Pin("indices", "int64", "[N, 2]", "The indices of each sparse column, ordered by row.", True, True)
VALUES = Pin("values", "sparse_types", "[N]", "The features of each sparse column.", True, True)
SHAPES = Pin("shapes", "int64", "[2]", "The shape of each sparse column.", True, True)
DENSE = Pin("dense_inputs", "dense_types", "[B, W]", "The dense columns, after the sparse ones.", True, True)
OUTPUTS = (
    Pin("output_indices", "int64", "[M, 2]", "The row of each cross and its place there."),
    Pin("output_values", "int64", "[M]", "The crosses."),
    Pin("output_shape", "int64", "[2]", "The number of rows, and of the crosses of the longest."),
)
HASH_KEY = Attribute("hash_key", REQUIRED, "The initial value of hashes.", "int")
HASHED = Attribute("hashed_output", REQUIRED, "Whether to hash; as in TensorFlow, {} decides.")
NUM_BUCKETS = Attribute("num_buckets", REQUIRED, "The number of buckets; 0 for hashes of 63 bits.", "int")
ERRORS = (
    "InvalidArgumentError: an argument has a wrong rank or length, or columns have different numbers of rows",
    "InvalidArgumentError: num_buckets is negative, or there are more crosses than can be counted",
    "OutOfMemoryError: the results do not fit into memory",
    "DTypeError: a type that is not listed",
)
COST = "O(bytes of all strings + crosses · columns)."
ORDER = "Entries must be ordered by row: as in TensorFlow, those after one that is out of order are lost."
ROWS = [[0, 0], [0, 1], [1, 0]]
EXAMPLE = {"indices": [ROWS], "values": [["a", "b", "c"]], "shapes": [[2, 2]], "dense_inputs": [[[7], [8]]]}
FORMULA = "for each row, every combination of one feature of each column, those of the last column changing fastest:\n"


def _cross_shapes(
    shapes: Mapping[str, Any], values: Mapping[str, Any], attributes: Mapping[str, Any]
) -> dict[str, Any]:
    return {"output_indices": (None, 2), "output_values": (None,), "output_shape": (2,)}


def _ragged_shapes(
    shapes: Mapping[str, Any], values: Mapping[str, Any], attributes: Mapping[str, Any]
) -> dict[str, Any]:
    return {"output_values": (None,), "output_row_splits": (None,)}


declare(Operator(
    name="SparseCross",
    function=None,
    family="cross",
    summary="Cross features, as crossed columns do: hashes, or text joined by _X_.",
    inputs=(INDICES, VALUES, SHAPES, DENSE),
    outputs=(OUTPUTS[0], Pin("output_values", "out_type", "[M]", "The crosses."), OUTPUTS[2]),
    types={"sparse_types": FEATURES, "dense_types": FEATURES, "out_type": FEATURES, "internal_type": FEATURES},
    attributes=(
        Attribute(HASHED.name, REQUIRED, HASHED.doc.format("out_type")), NUM_BUCKETS, HASH_KEY,
        Attribute("out_type", REQUIRED, "int64 for hashes, string for text.", "dtype"),
        Attribute("internal_type", REQUIRED, "string where all columns are text, int64 else.", "dtype"),
    ),
    formula=FORMULA + "cross = FingerprintCat64(… FingerprintCat64(hash_key, feature) …, feature) mod num_buckets, "
    "where text is hashed by Fingerprint64 first",
    errors=("InvalidArgumentError: internal_type is string, and a column has whole numbers", *ERRORS),
    cost=COST,
    example=Example(EXAMPLE, {"output_indices": ROWS, "output_values": [6, 6, 9], "output_shape": [2, 2]},
                    attributes={"hashed_output": True, "num_buckets": 10, "hash_key": 956888297470,
                                "out_type": "int64", "internal_type": "int64"}),
    compute=_sparse_cross,
    result=CrossedFeatures,
    notes=ORDER,
    shape_rule=_cross_shapes,
))  # fmt: skip
declare(Operator(
    name="SparseCrossV2",
    function=None,
    family="cross",
    summary="Cross features as text, joined by a separator.",
    inputs=(INDICES, VALUES, SHAPES, DENSE, Pin("sep", "string", "[]", "The separator between two features.")),
    outputs=(OUTPUTS[0], Pin("output_values", "string", "[M]", "The crosses."), OUTPUTS[2]),
    types={"sparse_types": FEATURES, "dense_types": FEATURES},
    formula=FORMULA + "cross = feature + sep + feature …",
    errors=ERRORS,
    cost=COST,
    example=Example({**EXAMPLE, "sep": "_X_"}, {"output_indices": ROWS, "output_values": ["a_X_7", "b_X_7", "c_X_8"],
                                                "output_shape": [2, 2]}),
    compute=_sparse_cross_v2,
    result=CrossedFeatures,
    notes=ORDER,
    shape_rule=_cross_shapes,
))  # fmt: skip
declare(Operator(
    name="SparseCrossHashed",
    function=None,
    family="cross",
    summary="Cross features as hashes, which may be keyed by a salt.",
    inputs=(
        INDICES, VALUES, SHAPES, DENSE,
        Pin("num_buckets", "int64", "[]", "The number of buckets; 0 for hashes of 63 bits."),
        Pin("strong_hash", "bool", "[]", "Whether features are hashed by SipHash with the salt as key."),
        Pin("salt", "int64", "[2]", "The key."),
    ),
    outputs=OUTPUTS,
    types={"sparse_types": FEATURES, "dense_types": FEATURES},
    formula=FORMULA + "cross = FingerprintCat64(… hash(feature) …, hash(feature)) mod num_buckets, where hash is "
    "Fingerprint64 or SipHash, of whole numbers that of their low four bytes; those in dense columns are taken as they "
    "are without strong_hash",
    errors=("InvalidArgumentError: salt is not two numbers", *ERRORS),
    cost=COST,
    example=Example({**EXAMPLE, "num_buckets": 10, "strong_hash": False, "salt": [1, 2]},
                    {"output_indices": ROWS, "output_values": [1, 2, 3], "output_shape": [2, 2]}),
    compute=_sparse_cross_hashed,
    result=CrossedFeatures,
    notes=ORDER,
    shape_rule=_cross_shapes,
))  # fmt: skip
declare(Operator(
    name="RaggedCross",
    function=None,
    family="cross",
    summary="Cross features of ragged, sparse and dense columns, as a ragged tensor.",
    inputs=(
        Pin("ragged_values", "ragged_values_types", "[N]", "The features of each ragged column.", True, True),
        Pin("ragged_row_splits", "ragged_splits_types", "[R]", "Where the rows of each ragged column begin and end.",
            True, True),
        Pin("sparse_indices", "int64", "[N, 2]", "The indices of each sparse column, ordered by row.", True, True),
        Pin("sparse_values", "sparse_values_types", "[N]", "The features of each sparse column.", True, True),
        Pin("sparse_shape", "int64", "[2]", "The shape of each sparse column.", True, True),
        Pin("dense_inputs", "dense_types", "[B, W]", "The dense columns.", True, True),
    ),
    outputs=(
        Pin("output_values", "out_values_type", "[M]", "The crosses."),
        Pin("output_row_splits", "out_row_splits_type", "[R]", "Where the crosses of each row begin and end."),
    ),
    types={"ragged_values_types": FEATURES, "ragged_splits_types": IDS, "sparse_values_types": FEATURES,
           "dense_types": FEATURES, "out_values_type": FEATURES, "out_row_splits_type": IDS},
    attributes=(
        Attribute("input_order", REQUIRED, "The order of the columns: R, S and D for the kinds.", "text"),
        Attribute(HASHED.name, REQUIRED, HASHED.doc.format("out_values_type")), NUM_BUCKETS, HASH_KEY,
        Attribute("out_values_type", REQUIRED, "int64 for hashes, string for text.", "dtype"),
        Attribute("out_row_splits_type", REQUIRED, "The type of the row splits.", "dtype"),
    ),
    formula=FORMULA + "as SparseCross",
    errors=("InvalidArgumentError: row splits do not match their values, or input_order to the columns", *ERRORS),
    cost=COST,
    example=Example(
        {"ragged_values": [["a", "b", "c"]], "ragged_row_splits": [[0, 2, 3]], "sparse_indices": [ROWS],
         "sparse_values": [[1, 2, 3]], "sparse_shape": [[2, 2]], "dense_inputs": [[[7], [8]]]},
        {"output_values": [4, 8, 7, 4, 7], "output_row_splits": [0, 4, 5]},
        attributes={"input_order": "RSD", "hashed_output": True, "num_buckets": 10, "hash_key": 956888297470,
                    "out_values_type": "int64", "out_row_splits_type": "int64"},
    ),
    compute=_ragged_cross,
    result=CrossedRows,
    notes="TensorFlow's process ends where row splits are of another type than out_row_splits_type; here they may be.",
    shape_rule=_ragged_shapes,
))  # fmt: skip
