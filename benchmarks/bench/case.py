"""What a case is: one piece of work on one input, who does it, and how far ahead we must be.

No arrays here and no framework, so that the list of cases can be read, filtered and tested without running anything.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from importlib import util
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from bench.contest import Entry

THREADS = 2  # for everyone, unless a case says otherwise
OURS = "rowgrad"


class Peer(NamedTuple):
    """What users call a peer, the module to look for, and the distribution to install."""

    title: str
    module: str
    distribution: str


PEERS = {
    "torch": Peer("PyTorch", "torch", "torch"),
    "fbgemm": Peer("FBGEMM", "fbgemm_gpu", "fbgemm-gpu-cpu"),
    "tensorflow": Peer("TensorFlow", "tensorflow", "tensorflow-cpu"),
    "scipy": Peer("SciPy", "scipy", "scipy"),
}


@dataclass(frozen=True)
class Case:
    """One contest, and its cell in a table: `table` is the heading, `row` and `column` are the place.

    `entries` makes each contestant when it is called; ours comes first. A name that begins with a peer's, such as
    "torch, same arrays", is another way of that peer; any other name is another way of ours.
    """

    group: str
    key: str  # unique within the group
    table: str
    row: str
    column: str
    entries: Mapping[str, Callable[[], "Entry"]]
    limits: Mapping[str, float] = field(default_factory=dict)  # by contestant: its time / ours, at least
    most_us: float | None = None  # our own time in microseconds, at most
    intel: float | None = None  # what Intel's merged bags reach on this case: PyTorch's time / theirs
    threads: int = THREADS
    needs: tuple[str, ...] = ()  # the peers that ours cannot do without

    @property
    def name(self) -> str:
        """What `--only` is matched with."""
        return f"{self.group}/{self.key}"

    def contestants(self, peers: Iterable[str]) -> dict[str, Callable[[], "Entry"]]:
        """Ours, and those that `peers` allow."""
        allowed = set(peers)
        return {name: make for name, make in self.entries.items() if (peer := peer_of(name)) is None or peer in allowed}


def peer_of(name: str) -> str | None:
    """The peer that a contestant is a way of, if any."""
    first = name.split(",")[0]
    return first if first in PEERS else None


def title_of(name: str) -> str:
    """A contestant's name for readers."""
    peer = peer_of(name)
    return name if peer is None else PEERS[peer].title + name[len(peer) :]


def matching(cases: list[Case], pattern: str) -> list[Case]:
    """The cases whose name contains `pattern`, in which * and ? stand for anything."""
    return [case for case in cases if fnmatchcase(case.name, f"*{pattern}*")]


def missing(names: Iterable[str]) -> list[str]:
    """Those of the peers `names` that are not installed."""
    return [name for name in names if util.find_spec(PEERS[name].module) is None]


def versions(names: Iterable[str]) -> dict[str, str]:
    """The version of each of the peers `names`."""
    found = {}
    for name in names:
        try:
            found[name] = version(PEERS[name].distribution)
        except PackageNotFoundError:  # the same module from another distribution, such as tensorflow
            found[name] = "unknown"
    return found


def short(number: int) -> str:
    """1000000 as 1M."""
    for unit, letter in ((10**6, "M"), (10**3, "k")):
        if number >= unit and number % unit == 0:
            return f"{number // unit}{letter}"
    return str(number)
