"""Batches blocks on pages: their settings, what is known of their columns before anything runs, and where they read."""

from collections import OrderedDict
from threading import Lock
from typing import TYPE_CHECKING, Any

from rowgrad._runtime import dtypes, texts
from rowgrad._runtime.files import folder
from rowgrad.blocks import batches
from rowgrad.blocks.batches import ROWS, SEGMENTS, SPLITS, TEST, TRAIN, Batches, Ragged
from rowgrad.blocks.inference import Inferred, Signal, infer_block
from rowgrad.blocks.model import Block
from rowgrad.errors import PageError, RowgradError

if TYPE_CHECKING:
    from rowgrad.blocks._core import Core

LONGEST = 100  # characters of the name of a column
MOST_KEPT = 8  # files whose columns are kept
SETTINGS = ("batch_size", "shuffle", "seed", "epochs", "remainder", "holdout", "splits", "split_by")
_kept: "OrderedDict[tuple[Any, ...], dict[str, Any]]" = OrderedDict()
_lock = Lock()


def infer(page: "Core", block: Block) -> Inferred:
    """What is known of a Batches block: the types and shapes of its columns."""
    found = infer_block(block, page.signal)
    given = found.attributes
    _check(block, given)
    ragged = given["ragged"] or ()
    known = None
    try:
        known = _columns_in_file(page, block, given) if given["path"] is not None else None
    except RowgradError as error:
        if error.code != "no-such-file":  # a page can be read where its data is not; running will tell
            raise PageError.of(error, block.id, block.op, "path") from error
    signals: dict[str, Signal] = {}
    if known is not None:
        for name, column in known.items():
            array = column.values if isinstance(column, Ragged) else column
            signals[name] = Signal(dtypes.name_of(array.dtype), array.shape)
    elif "data" in block.inputs:
        names = [part for name in given["columns"] for part in ([name, ""] if name in ragged else [name])]
        if len(names) != len(found.inputs["data"]):
            raise PageError(f"there are {len(found.inputs['data'])} arrays, and the columns need {len(names)}.",
                            block=block.id, pin="data", code="length-mismatch")  # fmt: skip
        signals = dict(zip(names, found.inputs["data"], strict=True))
    rows: int | str = given["batch_size"] if given["remainder"] == "drop" else f"{block.id}.{ROWS}"
    outputs = {ROWS: Signal("int64", (rows,))}
    for name in given["columns"]:
        signal = signals.get(name, Signal())
        if signal.shape == ():
            raise PageError(f"column {name} is a single value; it needs one entry for each example.", block=block.id,
                            pin="columns", code="wrong-rank")  # fmt: skip
        first = f"{block.id}.{name}" if name in ragged else rows
        outputs[name] = Signal(signal.dtype, None if signal.shape is None else (first, *signal.shape[1:]))
        if name in ragged:
            outputs[name + SPLITS] = Signal("int64", (rows + 1 if isinstance(rows, int) else f"{block.id}.splits",))
            outputs[name + SEGMENTS] = Signal("int64", (first,))
    return found._replace(outputs={pin.name: outputs[pin.name] for pin in block.operator.outputs})


def _check(block: Block, given: Any) -> None:
    def refuse(name: str, message: str) -> PageError:
        return PageError(message, block=block.id, pin=name, code="wrong-attribute", value=given[name], op=block.op)

    pins = [pin.name for pin in block.operator.outputs]
    for name in given["columns"]:
        if not isinstance(name, str) or not name or ":" in name or len(name) > LONGEST or not name.isprintable():
            raise refuse("columns", f"{name!r} is not a column name; allowed: at most {LONGEST} characters without "
                         "a colon.")  # fmt: skip
        texts.check(name, "the name of the column", PageError)
    if not given["columns"] or len(set(pins)) < len(pins):
        raise refuse("columns", f"the columns must have names of their own, and none may be called {ROWS}.")
    for name in given["ragged"] or ():
        if name not in given["columns"]:
            raise refuse("ragged", f"{name!r} is not one of the columns.")
    if not 1 <= given["batch_size"] < 2**31:
        raise refuse("batch_size", f"batch_size is {given['batch_size']}; it must be 1 to {2**31 - 1}.")
    if given["epochs"] is not None and given["epochs"] < 1:
        raise refuse("epochs", f"epochs is {given['epochs']}; it must be at least 1.")
    if given["remainder"] not in ("keep", "drop"):
        raise refuse("remainder", f"remainder is {given['remainder']!r}; it must be keep or drop.")
    if not 0 <= given["holdout"] < 1:
        raise refuse("holdout", f"holdout is {given['holdout']}; it must be at least 0 and less than 1.")
    shares = shares_of(given["splits"])
    if shares is None or {TRAIN, TEST} & set(shares) or len(shares) < len(given["splits"] or ()):
        raise refuse("splits", f"splits are {list(given['splits'])}; write name=share for each, with different names "
                     f"other than {TRAIN} and {TEST}, and shares from 0 to 1.")  # fmt: skip
    if given["holdout"] + sum(shares.values()) >= 1:
        raise refuse("splits", "the shares of holdout and splits must add up to less than 1.")
    if given["split_by"] is not None and (given["split_by"] not in given["columns"] or given["holdout"] or shares):
        raise refuse("split_by", f"split_by is {given['split_by']!r}; it must be one of the columns, and takes the "
                     "place of holdout and splits.")  # fmt: skip
    if not 0 <= given["seed"] < 2**63:
        raise refuse("seed", f"seed is {given['seed']}; it must be 0 to {2**63 - 1}.")


def shares_of(splits: Any) -> dict[str, float] | None:
    """The shares of splits by name; None where they are not written as ``name=share``."""
    found: dict[str, float] = {}
    for text in splits or ():
        name, equals, share = str(text).partition("=")
        try:
            found[name.strip()] = float(share)
        except ValueError:
            return None
        if not equals or not name.strip() or not 0 <= found[name.strip()] <= 1:
            return None
    return found


def _columns_in_file(page: "Core", block: Block, given: Any) -> dict[str, Any]:
    path = folder.inside(page.folder, given["path"])
    if not path.is_file():
        return batches.read(page.folder, given["path"], given["columns"])  # says what is wrong
    state = path.stat()
    key = (str(path), state.st_mtime_ns, state.st_size, state.st_ino, *given["columns"], None, *(given["ragged"] or ()))
    with _lock:
        if key in _kept:
            _kept.move_to_end(key)
            return _kept[key]
    found = batches.read(page.folder, given["path"], given["columns"], given["ragged"] or ())
    with _lock:
        _kept[key] = found
        while len(_kept) > MOST_KEPT:
            _kept.popitem(last=False)
    return found


def source(page: "Core", block: Block, inputs: list[Any]) -> Batches:
    """The batches of a block."""
    given = page.inferred(block.id).attributes
    if given["path"] is not None:
        columns = _columns_in_file(page, block, given)
    else:
        columns = batches.of_arrays(inputs[0], given["columns"], given["ragged"] or ())
    settings = {name: given[name] for name in SETTINGS}
    return Batches(columns, **{**settings, "splits": shares_of(given["splits"])})
