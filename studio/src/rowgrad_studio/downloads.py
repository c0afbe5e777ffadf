"""What can be taken out of the studio: an output as a file, and a page in other forms."""

import csv
import io
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from rowgrad._runtime import files
from rowgrad._runtime.dtypes import BFLOAT16, Array
from rowgrad.blocks.literals import plain
from rowgrad_studio.documents import Document
from rowgrad_studio.problems import Refusal
from rowgrad_studio.values import as_matrix

KINDS = {
    "npy": "application/octet-stream",
    "csv": "text/csv; charset=utf-8",
    "py": "text/x-python; charset=utf-8",
    "svg": "image/svg+xml",
    "png": "image/png",
    "pb": "application/octet-stream",
    "pbtxt": "text/plain; charset=utf-8",
    "page.json": "application/json",
}


def output(document: Document, block: str, pin: str, kind: str) -> bytes:
    """An output as .npy or .csv."""
    if kind not in ("npy", "csv"):
        raise Refusal("outputs are written as npy or csv.", "bad-request", argument="as", value=kind)
    array = document.result(block)[pin]
    return _npy(array) if kind == "npy" else _csv(array).encode()


def _npy(array: Array) -> bytes:
    if array.dtype == BFLOAT16:
        array = array.astype(np.float32)  # which holds every bfloat16; the format has no word for it
    with tempfile.TemporaryDirectory() as place:
        path = Path(place, "output.npy")
        files.write(path, {"output": array})
        return path.read_bytes()


def _csv(array: Array) -> str:
    """Rows of a matrix, each number with the digits that give it again."""
    lines = io.StringIO()
    writer = csv.writer(lines, lineterminator="\n")
    for row in as_matrix(array):
        writer.writerow([_spelt(item) for item in plain(row)])
    return lines.getvalue()


def _spelt(item: Any) -> Any:
    return item if not isinstance(item, bool) else str(item)


def export(document: Document, kind: str) -> bytes:
    """The page in another form; pictures have the results in them, unless they are just being computed."""
    page = document.page
    session = document.session if document.run is None else None
    makers: dict[str, Callable[[], str | bytes]] = {
        "py": page.to_python,
        "svg": lambda: page.to_svg(session),
        "png": lambda: page.to_png(session),
        "pb": page.to_graphdef,
        "pbtxt": lambda: page.to_graphdef(text=True),
        "page.json": page.to_json,
    }
    if kind not in makers:
        raise Refusal(f"pages are exported as {', '.join(makers)}.", "bad-request", argument="as", value=kind)
    made = makers[kind]()
    return made.encode() if isinstance(made, str) else made


def headers(name: str, kind: str) -> dict[str, str]:
    """Let the browser save it, under a name that every system allows."""
    plain_name = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.")[:100] or "page"
    return {"Content-Disposition": f'attachment; filename="{plain_name}.{kind}"'}
