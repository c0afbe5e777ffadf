"""Sparse tensors that are kept in maps of the process, each under a number, until they are taken out again.

The operators change what a map holds, so that they are no functions: pages have them as blocks, and users under
TensorFlow's names in `raw_ops`.
"""

from itertools import count
from threading import Lock
from typing import Any

import numpy as np

from rowgrad._ops import checks
from rowgrad._ops.catalogue import REQUIRED, Attribute, Example, Operator
from rowgrad._ops.pins import Pin
from rowgrad._ops.results import StoredEntries
from rowgrad._ops.serialize import ENTRIES, NO_ROOM, STORED, TYPES, WRONG_TYPE, rows_of, stack
from rowgrad._ops.sparse_groups import check_entries, sizes_of
from rowgrad._runtime.dtypes import Array, name_of
from rowgrad._runtime.memory import check_room
from rowgrad.errors import DTypeError, InvalidArgumentError


class _Map:
    """Tensors by their handles, which are never used twice."""

    def __init__(self) -> None:
        self.held: dict[int, tuple[Array, Array, Array]] = {}
        self.handles = count()


_maps: dict[tuple[str, str], _Map] = {}
_lock = Lock()


def _add(container: str, name: str, tensors: list[tuple[Array, Array, Array]]) -> list[int]:
    with _lock:
        found = _maps.setdefault((container, name), _Map())
        handles = [next(found.handles) for _ in tensors]
        found.held.update(zip(handles, tensors, strict=True))
    return handles


def _add_one(sparse_indices: Array, sparse_values: Array, sparse_shape: Array, *, container: str = "",
             shared_name: str = "") -> Array:  # fmt: skip
    check_entries("sparse_values", sparse_values, sparse_indices, sparse_shape, "sparse_")
    sizes_of("sparse_shape", sparse_shape)
    check_room(sparse_indices.nbytes + sparse_values.nbytes, "sparse_values")
    tensor = (sparse_indices.copy(), sparse_values.copy(), sparse_shape.copy())
    return np.array(_add(container, shared_name or "AddSparseToTensorsMap", [tensor])[0], np.int64)


def _add_many(sparse_indices: Array, sparse_values: Array, sparse_shape: Array, *, container: str = "",
              shared_name: str = "") -> Array:  # fmt: skip
    sizes, starts = rows_of(sparse_indices, sparse_values, sparse_shape)
    check_room(sizes[0] * 512 + sparse_indices.nbytes + sparse_values.nbytes, "sparse_values")
    shape = np.array(sizes[1:], np.int64)
    inner, values = sparse_indices[:, 1:].copy(), sparse_values.copy()
    # As in TensorFlow, rows with entries get their handles first.
    lengths = np.diff(starts)
    order = np.concatenate([np.flatnonzero(lengths), np.flatnonzero(lengths == 0)])
    spans = zip(starts[order].tolist(), (starts[order] + lengths[order]).tolist(), strict=True)
    handles = np.empty(sizes[0], np.int64)
    handles[order] = _add(container, shared_name or "AddManySparseToTensorsMap",
                          [(inner[begin:end], values[begin:end], shape) for begin, end in spans])  # fmt: skip
    return handles


def _take(sparse_handles: Array, *, dtype: str, container: str = "", shared_name: str = "") -> StoredEntries:
    checks.rank("sparse_handles", sparse_handles, 1)
    handles = sparse_handles.tolist()
    if not handles:
        raise InvalidArgumentError("sparse_handles is empty; there must be at least one handle.", code="empty",
                                   argument="sparse_handles", value=())  # fmt: skip
    with _lock:
        held = _maps[container, shared_name].held if (container, shared_name) in _maps else {}
        for position, handle in enumerate(handles):
            if handle not in held or handle in handles[:position]:
                raise InvalidArgumentError(
                    f"sparse_handles[{position}] is {handle}, which is not in the map {shared_name!r}; each tensor can "
                    "be taken once. Name the map that it was added to, and add it again.",
                    code="unknown-handle", argument="sparse_handles", position=position, value=handle,
                )  # fmt: skip
            if name_of(held[handle][1].dtype) != dtype:
                raise DTypeError(
                    f"sparse_handles[{position}] is a tensor of {name_of(held[handle][1].dtype)}, not of {dtype}.",
                    code="wrong-dtype", argument="sparse_handles", value=name_of(held[handle][1].dtype),
                )  # fmt: skip
        found = stack([held[handle] for handle in handles], "sparse_handles")
        for handle in handles:
            del held[handle]
    return found


# Declarations

CONTAINER = Attribute("container", "", "Where the map is; maps of different containers have nothing in common.", "text")
OWN_NAME = Attribute("shared_name", "", "The name of the map; else that of the operator, or on a page of the block.",
                     "text")  # fmt: skip
THEIR_NAME = Attribute("shared_name", "", "The name of the map that the tensors were added to.", "text")
WRONG_SIZES = "InvalidArgumentError: ranks and lengths do not match, or a length is negative"


def _entries_shape(shapes: Any, values: Any, attributes: Any) -> dict[str, Any]:
    return {"sparse_indices": (None, None), "sparse_values": (None,), "sparse_shape": (None,)}


def _handles_shape(shapes: Any, values: Any, attributes: Any) -> dict[str, Any]:
    return {"sparse_handles": (int(values["sparse_shape"][0]) if "sparse_shape" in values else None,)}


_OPERATORS = (
    Operator(
        name="AddSparseToTensorsMap",
        function=None,
        family="page",
        role="map",
        summary="Store a sparse tensor in a map.",
        inputs=ENTRIES,
        outputs=(Pin("sparse_handle", "int64", "[]", "Its number in the map."),),
        types={"T": TYPES},
        attributes=(CONTAINER, OWN_NAME),
        formula="map[sparse_handle] = the sparse tensor, where sparse_handle was not used before",
        errors=(WRONG_SIZES, NO_ROOM, WRONG_TYPE),
        cost="O(bytes).",
        example=Example({"sparse_indices": [[1]], "sparse_values": [5], "sparse_shape": [2]}, {"sparse_handle": 0}),
        compute=_add_one,
        shape_rule=lambda shapes, values, attributes: {"sparse_handle": ()},
        notes="Tensors that are not taken out stay in memory.",
    ),
    Operator(
        name="AddManySparseToTensorsMap",
        function=None,
        family="page",
        role="map",
        summary="Store each row of a sparse tensor in a map.",
        inputs=ENTRIES,
        outputs=(Pin("sparse_handles", "int64", "[rows]", "The numbers of the rows in the map."),),
        types={"T": TYPES},
        attributes=(CONTAINER, OWN_NAME),
        formula="map[sparse_handles[i]] = row i of the sparse tensor",
        errors=(WRONG_SIZES, "InvalidArgumentError: there is one dimension only, or indices do not ascend",
                "OutOfRangeError: an index is not within sparse_shape", NO_ROOM, WRONG_TYPE),
        cost="O(bytes + rows).",
        example=Example({"sparse_indices": [[0, 1]], "sparse_values": [5], "sparse_shape": [2, 2]},
                        {"sparse_handles": [0, 1]}),
        compute=_add_many,
        shape_rule=_handles_shape,
        notes="Rows with entries get their numbers first. Tensors that are not taken out stay in memory.",
    ),
    Operator(
        name="TakeManySparseFromTensorsMap",
        function=None,
        family="page",
        role="map",
        summary="Take sparse tensors out of a map, and stack them.",
        inputs=(Pin("sparse_handles", "int64", "[N]", "Their numbers."),),
        outputs=STORED,
        types={"dtype": TYPES},
        attributes=(Attribute("dtype", REQUIRED, "The type that the values must have.", "dtype"), CONTAINER,
                    THEIR_NAME),
        formula="row i of the result = map[sparse_handles[i]], which the map then has no more",
        errors=("InvalidArgumentError: a number is not in the map, or occurs twice, or tensors differ in rank",
                "DTypeError: the values have another type", NO_ROOM),
        cost="O(bytes).",
        example=Example({"sparse_handles": [0]},
                        {"sparse_indices": [[0, 1]], "sparse_values": [5], "sparse_shape": [1, 2]},
                        attributes={"dtype": "int32", "shared_name": "AddSparseToTensorsMap"}),
        compute=_take,
        result=StoredEntries,
        shape_rule=_entries_shape,
        notes="Tensors of different lengths get the longest of each dimension. If one cannot be taken, none is.",
    ),
)  # fmt: skip
MAPS = {operator.name: operator for operator in _OPERATORS}
