"""State dicts of sharded layers: `DTensor`s of the whole table, which `torch.distributed.checkpoint` saves in parts
and loads into any number of ranks.

The rows stand in the order of their positions, which does not depend on the number of ranks (`ownership.py`).
"""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Shard

from rowgrad.errors import InvalidArgumentError
from rowgrad.torch.distributed._ownership import SHARDINGS

if TYPE_CHECKING:
    from rowgrad.torch.distributed._sharded import ShardedEmbeddingBag

LAYOUT = "layout"  # the buffer that tells in which order the rows stand
VERSION = 1


def layout(layer: "ShardedEmbeddingBag") -> dict[str, Tensor]:
    """What must fit when a table is loaded: version, sharding, rows and columns, as numbers."""
    numbers = [VERSION, SHARDINGS.index(layer.sharding), layer.num_embeddings, layer.embedding_dim]
    return {LAYOUT: torch.tensor(numbers, dtype=torch.int64)}


def spread(layer: "ShardedEmbeddingBag", destination: dict[str, Any], prefix: str) -> None:
    """Replace what has a row for each row held here by tensors that stand for all ranks' rows."""
    for name in _of_rows(layer):
        destination[prefix + name] = whole(layer, destination[prefix + name])


def whole(layer: "ShardedEmbeddingBag", local: Tensor) -> DTensor:
    """A tensor that stands for all ranks' rows, made of one with a row for each row held here."""
    shape = torch.Size((layer.num_embeddings, *local.shape[1:]))
    stride = torch.empty(shape, device="meta").stride()
    return DTensor.from_local(local.detach(), _mesh(layer), [Shard(0)], run_check=False, shape=shape, stride=stride)


def own_rows(layer: "ShardedEmbeddingBag", value: Tensor) -> Tensor:
    """The rows held here, of a tensor that has all rows in the order of their positions; others stay as they are."""
    if isinstance(value, DTensor):
        return value.to_local()
    first, last = layer.ownership.piece(layer.exchange.rank)
    if value.shape[:1] != (layer.num_embeddings,) or last - first == layer.num_embeddings:
        return value
    return value[first:last]


def gathered(layer: "ShardedEmbeddingBag", state_dict: dict[str, Any], prefix: str) -> dict[str, Any]:
    """The state with this rank's rows in the place of whole tables.

    A state without a layout is one of a layer in one process, whose rows stand in the order of ids.
    """
    found = dict(state_dict)
    given = found.get(prefix + LAYOUT)
    if given is not None:
        _check(layer, given)
    found[prefix + LAYOUT] = layer.get_buffer(LAYOUT)
    for name in _of_rows(layer):
        value = found.get(prefix + name)
        if value is None:
            continue
        in_order_of_ids = given is None and not isinstance(value, DTensor)
        if in_order_of_ids and value.shape[:1] == (layer.num_embeddings,):
            found[prefix + name] = value[torch.from_numpy(layer.ownership.ids(layer.exchange.rank))]
        else:
            found[prefix + name] = own_rows(layer, value)
    buffers = [name for name in layer._buffers if name != LAYOUT]
    if given is None and not any(prefix + name in found for name in buffers):
        found.update({prefix + name: layer.get_buffer(name) for name in buffers})
    return found


def _of_rows(layer: "ShardedEmbeddingBag") -> list[str]:
    state = [name for name, array in layer._buffers.items() if name != LAYOUT and array is not None and array.dim() > 0]
    return ["weight", *state]


def _check(layer: "ShardedEmbeddingBag", given: Tensor) -> None:
    names = ("version", "sharding", "num_embeddings", "embedding_dim")
    numbers = given.tolist()
    for name, value, own in zip(names, numbers, layer.get_buffer(LAYOUT).tolist(), strict=False):
        if value != own:
            told = (repr(SHARDINGS[n]) if name == "sharding" and 0 <= n < len(SHARDINGS) else n for n in (value, own))
            there, here = told
            raise InvalidArgumentError(
                f"the saved table has {name} {there}, this layer {here}. Make the layer as the saved one was.",
                code="checkpoint-differs",
                argument=name,
                value=value,
            )


def _mesh(layer: "ShardedEmbeddingBag") -> DeviceMesh:
    """The ranks of the layer's group, in their order."""
    if layer._mesh is None:
        layer._mesh = DeviceMesh.from_group(layer.exchange.process_group, "cpu")
    return layer._mesh
