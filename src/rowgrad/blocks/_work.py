"""The work of blocks that only pages have: constants, files and maps. Variables and feeds are the session's own."""

from collections.abc import Callable, Mapping
from time import time_ns
from typing import Any

import numpy as np

from rowgrad._runtime import dtypes
from rowgrad._runtime.dtypes import Array
from rowgrad._runtime.files import folder
from rowgrad.blocks.literals import literal
from rowgrad.blocks.model import Block
from rowgrad.blocks.page import Page
from rowgrad.blocks.values import brief
from rowgrad.errors import PageError

LONGEST_TOLD = 200  # characters of an array in the error of an Assert block
UNSETTLED = 100_000_000  # nanoseconds


def check_array(
    id: str, pin: str, array: Array, dtype: str | None, shape: Any, sizes: dict[str, tuple[int, str]]
) -> None:
    """`array` must have the type and shape of the pin; `sizes` are the named ones so far, and who said so."""
    if dtype is not None and dtypes.name_of(array.dtype) != dtype:
        raise PageError(f"it is {dtypes.name_of(array.dtype)}, and must be {dtype}.", block=id, pin=pin,
                        code="wrong-dtype")  # fmt: skip
    if shape is None:
        return
    wanted = f"[{', '.join(map(str, shape))}]"
    if len(shape) != array.ndim:
        raise PageError(f"it has shape {list(array.shape)}, and must have {wanted}.", block=id, pin=pin,
                        code="wrong-rank", value=array.shape)  # fmt: skip
    for size, actual in zip(shape, array.shape, strict=True):
        known, by = sizes.setdefault(size, (actual, id)) if isinstance(size, str) else (size, id)
        if known is not None and known != actual:
            why = f" ({size} is {known} by {by})" if isinstance(size, str) else ""
            raise PageError(f"it has shape {list(array.shape)}, and must have {wanted}{why}.", block=id, pin=pin,
                            code="length-mismatch", value=array.shape)  # fmt: skip


def fed_arrays(page: Page, held: Mapping[str, Array], feeds: Mapping[str, Any] | None) -> dict[str, Array]:
    """What is fed anew, as arrays that fit the placeholders, and the sizes of what is `held` already."""
    sizes: dict[str, tuple[int, str]] = {}
    new: dict[str, Array] = {}
    for name, value in (feeds or {}).items():
        id = name.removesuffix(":output") if isinstance(name, str) else name
        if id not in page or page[id].operator.role != "placeholder":
            listed = ", ".join(block.id for block in page if block.operator.role == "placeholder") or "none"
            raise PageError(f"there is no placeholder {id!r} to feed; there are: {listed}.", code="unknown-feed",
                            value=id)  # fmt: skip
        try:
            new[id] = literal(value, page.signal(f"{id}:output").dtype).value
        except PageError as error:
            error.message = f"what is fed does not fit: {error.message}"
            raise PageError.of(error, id, "Placeholder", "output") from error
    for id, array in {**held, **new}.items():
        if id in page:
            signal = page.signal(f"{id}:output")
            if id in new or signal.dtype == dtypes.name_of(array.dtype):
                check_array(id, "output", array, signal.dtype, signal.shape, sizes)
    return new


def file_state(page: Page, block: Block, inputs: list[Any]) -> Any:
    """When the file of a block was last written; it is read again when that changes."""
    path = folder.inside(page.folder, inputs[0].item() if inputs else block.attributes.get("path"))
    if not path.is_file():
        return None
    found = path.stat()
    # Clocks of file systems are coarse: a file that was written a moment ago may be written again in the same moment.
    is_settled = abs(time_ns() - found.st_mtime_ns) > UNSETTLED
    return (found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino, None if is_settled else object())


def _const(page: Page, block: Block, inputs: list[Any]) -> tuple[Array]:
    return (page.constant(block.id),)


def _file(page: Page, block: Block, inputs: list[Any]) -> tuple[Array]:
    given = block.attributes
    return (folder.read(page.folder, given.get("path"), given.get("part"), given.get("dtype")),)


def _save(page: Page, block: Block, inputs: list[Any]) -> tuple[()]:
    filename, tensor_names, data = inputs
    names = [str(name) for name in tensor_names.tolist()]
    if len(names) != len(data) or len(set(names)) != len(names) or not all(names):
        raise PageError(f"there are {len(names)} names for {len(data)} arrays; each needs one of its own.",
                        block=block.id, pin="tensor_names", code="length-mismatch")  # fmt: skip
    folder.write(page.folder, filename.item(), dict(zip(names, data, strict=True)))
    return ()


def _restore(page: Page, block: Block, inputs: list[Any]) -> tuple[Array]:
    pattern, name = inputs
    attributes = page.inferred(block.id).attributes
    array = folder.read(page.folder, pattern.item(), name.item())
    check_array(block.id, "tensor", array, attributes["dt"], attributes["shape"], {})
    return (array,)


def _map(page: Page, block: Block, inputs: list[Any]) -> tuple[Array, ...]:
    settings = dict(page.inferred(block.id).attributes)
    if block.op.startswith("Add"):  # a map without a name has that of the block, as in TensorFlow's graphs
        settings["shared_name"] = settings["shared_name"] or block.id
    results = block.operator(*inputs, **settings)
    return results if block.operator.result else (results,)


def _assert(page: Page, block: Block, inputs: list[Any]) -> tuple[()]:
    condition, data = inputs
    if not bool(np.all(condition)):
        told = " ".join(brief(np.asarray(array), LONGEST_TOLD) for array in data)
        raise PageError(f"the condition is false: {told}", block=block.id, pin="condition", code="assertion-failed")
    return ()


# By role: the page, the block and its inputs to the results.
WORK: dict[str, Callable[[Page, Block, list[Any]], tuple[Array, ...]]] = {
    "const": _const,
    "file": _file,
    "save": _save,
    "restore": _restore,
    "map": _map,
    "assert": _assert,
}
