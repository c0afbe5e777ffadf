"""Summaries for TensorBoard: recorded values of runs as event files, written with the protocol buffers it ships.

A record is its length, a checksum of that, the bytes of an Event, and a checksum of these, as in TensorFlow's record
files. Single numbers become scalars, arrays histograms; the page itself is the graph.
"""

import os
import socket
import struct
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from rowgrad._runtime.checksums import crc32c, masked
from rowgrad._runtime.dtypes import Array
from rowgrad.blocks import values as shown
from rowgrad.blocks.runs import Run
from rowgrad.errors import FileError, RowgradError

if TYPE_CHECKING:
    from rowgrad.blocks.page import Page

VERSION = "brain.Event:2"
MOST_BUCKETS = 30


def write_runs(folder: str | Path, runs: "Mapping[str, Run] | list[Run]", page: "Page | None" = None) -> list[Path]:
    """Write runs below `folder`, each into a folder of its own name; the files that were written."""
    listed = list(runs.values()) if isinstance(runs, Mapping) else runs
    return [write_run(Path(folder) / _folder_name(run.name), run, page) for run in listed]


def write_run(folder: str | Path, run: Run, page: "Page | None" = None) -> Path:
    """Write what a run has recorded into an event file of `folder`, with the graph of `page` if it has one."""
    with EventFile(folder) as events:
        if page is not None:
            events.graph(page)
        for position, step in enumerate(run.steps):
            events.values(step, {name: found[position] for name, found in run.values.items()})
        return events.path


class EventFile:
    """An event file that is being written; TensorBoard reads it while it grows.

    Parameters
    ----------
    folder : path
        Where it is put; made if it is not there.

    Raises
    ------
    FileError
        TensorBoard is not installed, or the file cannot be written.
    """

    def __init__(self, folder: str | Path) -> None:
        self._event = _event_class()
        place = Path(folder)
        name = f"events.out.tfevents.{int(time.time()):010d}.{socket.gethostname()}.{os.getpid()}"
        try:
            place.mkdir(parents=True, exist_ok=True)
            self.path = _unused(place, name)
            self._file: BinaryIO = self.path.open("xb")
        except OSError as error:
            raise FileError(f"{error.filename or place}: {error.strerror or error}.") from error
        self._write(self._event(wall_time=time.time(), file_version=VERSION))

    def values(self, step: int, found: Mapping[str, Array]) -> None:
        """Write the values of one step: single numbers as scalars, arrays of numbers as histograms."""
        event = self._event(wall_time=time.time(), step=step)
        for name, value in found.items():
            plain = shown.plain(np.asarray(value))
            if plain.dtype.kind not in "biuf" or not plain.size:
                continue
            if plain.size == 1:
                event.summary.value.add(tag=_tag(name), simple_value=float(plain.reshape(())))
            else:
                _histogram(event.summary.value.add(tag=_tag(name)).histo, plain)
        self._write(event)

    def graph(self, page: "Page") -> None:
        """Write the graph of a page; one that TensorFlow has no operators for is left out."""
        try:
            graph = page.to_graphdef()
        except RowgradError:
            return
        self._write(self._event(wall_time=time.time(), graph_def=graph))

    def _write(self, event: Any) -> None:
        data = event.SerializeToString()
        length = struct.pack("<Q", len(data))
        checks = [struct.pack("<I", masked(crc32c(part))) for part in (length, data)]
        try:
            self._file.write(length + checks[0] + data + checks[1])
            self._file.flush()
        except OSError as error:
            raise FileError(f"{self.path}: {error.strerror or error}.") from error

    def close(self) -> None:
        """End the file."""
        self._file.close()

    def __enter__(self) -> "EventFile":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _event_class() -> Any:
    try:
        from tensorboard.compat.proto import event_pb2
    except ImportError as error:
        raise FileError("summaries need the protocol buffers of TensorBoard, which is not installed.",
                        "pip install 'rowgrad[graphdef]'") from error  # fmt: skip
    return event_pb2.Event


def _unused(place: Path, name: str) -> Path:
    """A name that no file in `place` has, so that runs that end in the same second do not overwrite each other."""
    number = 0
    while (place / f"{name}.{number}").exists():
        number += 1
    return place / f"{name}.{number}"


def _histogram(proto: Any, values: Array) -> None:
    numbers = values.astype(np.float64).reshape(-1)
    numbers = numbers[np.isfinite(numbers)]
    if not numbers.size:
        return
    with np.errstate(over="ignore"):
        counts, edges = np.histogram(numbers / 2, MOST_BUCKETS)  # halved: the range of the largest would overflow
        proto.min, proto.max, proto.num = float(numbers.min()), float(numbers.max()), float(numbers.size)
        proto.sum, proto.sum_squares = float(numbers.sum()), float((numbers**2).sum())
        proto.bucket_limit.extend((edges[1:] * 2).tolist())
        proto.bucket.extend(counts.astype(np.float64).tolist())


def _tag(name: str) -> str:
    return name.removesuffix(":output").replace(":", "/")


def _folder_name(name: str) -> str:
    """The name of a run as that of a folder: no separators, no dots at the front."""
    kept = "".join(c if c.isalnum() or c in "=-_. +" else "_" for c in name).strip().lstrip(".")
    return kept or "run"
