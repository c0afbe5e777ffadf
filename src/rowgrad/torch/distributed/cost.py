"""What a step of a sharded table costs: bytes on the wire and seconds, for any number of ranks, before there are any.

The bytes follow from the protocol (`_request.py`, `_message.py`, `_answers.py`) and are those that `Traffic` counts;
the seconds need a few constants of the machines, which `benchmarks/scale.py` measures. `docs/scale.md` compares both
with runs.
"""

from dataclasses import dataclass
from math import ceil, inf

from rowgrad.errors import InvalidArgumentError
from rowgrad.torch.distributed._ownership import owners
from rowgrad.torch.distributed._placement import column_step

SIZES = {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8}
COUNTS = 56  # bytes that each rank tells each other before ids, and before gradients
HEAD = 16  # bytes of a message with ids before them: how many ids and runs there are
ROW = 4  # bytes of a row's number; tables of more than 2**31 rows a rank need 8
PACKET, HEADERS = 1448, 66  # bytes of a full TCP packet, and of its Ethernet, IP and TCP headers with a time stamp
GLOO = 144  # bytes that Gloo adds to a message: three announcements


@dataclass(frozen=True)
class Batch:
    """The part of a batch that one rank has, and the table it looks it up in.

    Parameters
    ----------
    bags, ids_per_bag : float
        Bags on this rank, and ids in a bag on average.
    width : int
        Columns of the table.
    dtype : str
        Of the table.
    owners : float, optional
        On how many ranks the ids of a bag live, on average; by default as for ids that are spread evenly. Where ids
        repeat within a bag, or live together, it is less.
    unique : float, optional
        Different ids in this part of the batch; matters with `exact`, with the combiner max and for small tables, where
        each is sent once. By default all ids are different.
    rows : int, optional
        Rows of the table; by default many more than there are ids. Rows of smaller tables travel instead of sums where
        they are fewer.
    combiner : {"mean", "sum", "sqrtn", "max"}
        As in the layer.
    exact : bool
        As in the layer.
    weighted, weights_learn : bool
        Whether ids have weights, and whether those get gradients.
    train : bool
        Whether there is a backward pass.
    """

    bags: float
    ids_per_bag: float
    width: int
    dtype: str = "float32"
    owners: float | None = None
    unique: float | None = None
    rows: int | None = None
    combiner: str = "mean"
    exact: bool = False
    weighted: bool = False
    weights_learn: bool = False
    train: bool = True

    def __post_init__(self) -> None:
        if self.dtype not in SIZES:
            raise InvalidArgumentError(
                f"dtype is {self.dtype!r}; allowed: {', '.join(SIZES)}.",
                code="wrong-dtype",
                argument="dtype",
                value=self.dtype,
            )

    @property
    def ids(self) -> float:
        """Ids on this rank."""
        return self.bags * self.ids_per_bag


@dataclass(frozen=True)
class Machine:
    """What a step takes time for.

    Parameters
    ----------
    kernel : float
        Seconds for an id on one rank: routing, look-up, backward pass, optimizer. Depends on width and table.
    bandwidth : float
        Bytes a second that a rank sends while it receives as many.
    latency : float
        Seconds that a short message takes from one rank to another.
    message : float
        Seconds of a rank's own time for each message in an exchange; one goes to each other rank.
    copy : float
        Bytes a second of rows and gradients, with those that stay on the rank, that it packs and unpacks; or, on one
        machine, of gradients that it writes for all ranks.
    cores : float
        Cores for all ranks together, where they share a machine; a rank computes on one, and stays there.
    pack : float
        Seconds for an id, to write it to a message and to read it.
    step : float
        Seconds of a rank's own time for a step, however small, beside its messages.
    """

    kernel: float
    bandwidth: float = inf
    latency: float = 0.0
    message: float = 0.0
    cores: float = inf
    copy: float = inf
    pack: float = 0.0
    step: float = 0.0


def wire_bytes(ranks: int, batch: Batch) -> dict[str, float]:
    """Bytes that one rank sends to others in a step, by the purposes of `Traffic`, for ids that are spread evenly.

    Nothing here depends on the number of rows: the dense table or its gradient never travels.

    Examples
    --------
    >>> from rowgrad.torch.distributed import cost
    >>> sent = cost.wire_bytes(2, cost.Batch(bags=1000, ids_per_bag=30, width=64))
    >>> {purpose: round(bytes_) for purpose, bytes_ in sent.items()}
    {'counts': 112, 'ids': 64016, 'rows': 256000, 'gradients': 256000, 'weights': 0}
    """
    if ranks < 1:
        raise InvalidArgumentError(
            f"ranks is {ranks}; there is at least 1.", code="too-small", argument="ranks", value=ranks
        )
    others = (ranks - 1) / ranks  # the part of everything that lives elsewhere
    item = SIZES[batch.dtype]
    sums = max(item, 4)  # half and bfloat16 are summed in float32, and so are their weights
    entries = batch.ids * others
    # A bag's ids on one rank travel, and come back as a sum, together.
    runs = batch.bags * (owners(ranks, batch.ids_per_bag) if batch.owners is None else batch.owners) * others
    whole_rows = batch.exact or batch.combiner == "max"
    unique = batch.ids if batch.unique is None else batch.unique
    if _pooled_here(ranks, batch, unique):
        each = unique * others * batch.width * item
        return {"counts": COUNTS * (ranks - 1) * (1 + batch.train),
                "ids": HEAD * (ranks - 1) + unique * others * (ROW + 4), "rows": each,
                "gradients": each * batch.train, "weights": 0}  # fmt: skip
    sized = batch.train and item == 2 and batch.combiner in ("mean", "sqrtn") and not batch.weighted
    rows = (unique * others if whole_rows else runs) * batch.width * item
    gradients = runs * batch.width * (item + ROW * (batch.combiner == "max"))
    return {
        "counts": COUNTS * (ranks - 1) * (1 + batch.train),
        "ids": HEAD * (ranks - 1) + entries * (ROW + sums * batch.weighted) + runs * 4 * (1 + sized),
        "rows": rows,
        "gradients": gradients * batch.train,
        "weights": entries * sums * (batch.train and batch.weights_learn),
    }


def placed_bytes(ranks: int, batch: Batch, kind: str, features: int = 1, *, shared: bool = False) -> dict[str, float]:
    """Bytes that one rank sends to others in a step for a table of a sharded collection, on average over the ranks.

    Parameters
    ----------
    ranks : int
    batch : Batch
        The bags of one feature on a rank; with `rows`, if it is replicated.
    kind : {"row", "table", "column", "replicated"}
        How the table is placed.
    features : int
        How many features it has, each with such bags.
    shared : bool
        Whether all ranks are on one machine: then rows are read where they are.

    Examples
    --------
    >>> from rowgrad.torch.distributed import cost
    >>> batch = cost.Batch(bags=2048, ids_per_bag=1, width=64, rows=1000)
    >>> [round(sum(cost.placed_bytes(16, batch, kind).values())) for kind in ("row", "table", "replicated")]
    [998640, 998415, 3960000]
    """
    others, item = (ranks - 1) / ranks, SIZES[batch.dtype]
    weight = max(item, 4) * batch.weighted
    if kind == "row":
        runs = batch.bags * (owners(ranks, batch.ids_per_bag) if batch.owners is None else batch.owners)
        answers = batch.ids if batch.exact else runs
        if shared:  # each rank sees where each bag begins, and the gradient of each
            runs, answers = batch.bags * ranks, 0
        asked = batch.ids * (ROW + weight) * (ranks if shared else 1)  # each rank looks for its own among all ids
        found = {"ids": asked + 4 * runs + 16 * ranks, "rows": answers * batch.width * item,
                 "gradients": runs * batch.width * item, "weights": batch.ids * max(item, 4)}  # fmt: skip
    elif kind == "replicated":
        rows = min(batch.ids * features, batch.ids * features if batch.rows is None else batch.rows)
        each = batch.ids * (8 + weight) + batch.bags * (8 + batch.width * item)
        sent = each if batch.exact else rows * (8 + batch.width * item) / features
        found = {"ids": 0.0, "rows": 0.0, "gradients": sent * ranks, "weights": 0.0}
    else:
        pieces = -(-batch.width // column_step(batch.width, ranks)) if kind == "column" else 1  # each gets the ids
        found = {"ids": (batch.ids * (ROW + weight) + 4 * batch.bags + 16) * pieces,
                 "rows": batch.bags * batch.width * item * (not shared),
                 "gradients": batch.bags * batch.width * item,
                 "weights": batch.ids * max(item, 4) * pieces}  # fmt: skip
    wanted = {"gradients": batch.train, "weights": batch.train and batch.weights_learn}
    return {purpose: sent * others * features * wanted.get(purpose, True) for purpose, sent in found.items()}


def _pooled_here(ranks: int, batch: Batch, unique: float) -> bool:
    """Whether each row is asked for once, as the layer decides it (`_request.needed`)."""
    possible = not batch.exact and batch.combiner != "max" and SIZES[batch.dtype] > 2
    small = batch.rows is not None and ranks > 1 and batch.rows <= batch.ids
    return possible and small and unique < batch.bags * owners(ranks, batch.ids_per_bag)


def exchanges(batch: Batch, *, shared: bool = False) -> int:
    """How many exchanges a step needs: counts, ids, rows; counts again, and what goes back.

    Ranks that see each other's tables (`shared`) need none for ids and gradients, unless weights have gradients.
    """
    if shared:
        return 2 + batch.train * (1 + 2 * batch.weights_learn)
    return 3 + batch.train * (2 + (batch.combiner == "max") + batch.weights_learn)


def packet_bytes(ranks: int, batch: Batch) -> float:
    """Bytes that leave a rank's network interface in a step, over Ethernet with packets of 1500 bytes.

    To what `wire_bytes` tells come Gloo's announcements, the headers of the packets, and an acknowledgement for each
    two packets that arrive.

    Examples
    --------
    >>> from rowgrad.torch.distributed import cost
    >>> batch = cost.Batch(bags=1000, ids_per_bag=30, width=64)
    >>> round(cost.packet_bytes(2, batch) / sum(cost.wire_bytes(2, batch).values()), 3)
    1.072
    """
    sent = sum(wire_bytes(ranks, batch).values())
    messages = exchanges(batch) * (ranks - 1)
    packets = sent / PACKET + 3 * messages
    return sent + GLOO * messages + HEADERS * packets * 1.5


def step_seconds(ranks: int, batch: Batch, machine: Machine) -> float:
    """Seconds for a step, forward and backward, of ranks that each have such a batch.

    The ranks wait for one another in each exchange, so the slowest of them counts: `batch` is that of the busiest rank.

    Examples
    --------
    >>> from rowgrad.torch.distributed import cost
    >>> here = cost.Machine(kernel=100e-9, bandwidth=1e9, latency=100e-6, message=20e-6)
    >>> batch = cost.Batch(bags=1000, ids_per_bag=30, width=64)
    >>> [round(1000 * cost.step_seconds(ranks, batch, here), 2) for ranks in (1, 2, 1024)]
    [3.0, 4.18, 121.3]
    """
    sent = wire_bytes(ranks, batch)
    return _seconds(ranks, batch.ids, sum(sent.values()), _moved(ranks, sent), exchanges(batch), machine)


def collection_bytes(ranks: int, batch: Batch, kind: str, tables: int, *, shared: bool = False) -> float:
    """Bytes that one rank sends to others in a step of a sharded collection of such tables, all placed one way."""
    sent = placed_bytes(ranks, batch, kind, shared=shared)
    return tables * sum(sent.values()) + COUNTS * (ranks - 1) * (1 + batch.train)


def collection_seconds(
    ranks: int, batch: Batch, kind: str, tables: int, machine: Machine, *, shared: bool = False
) -> float:
    """Seconds for a step of a sharded collection of so many tables, all placed one way, forward and backward.

    Parameters
    ----------
    ranks : int
    batch : Batch
        The bags of one table on a rank.
    kind : {"row", "table", "column", "replicated"}
        How the tables are placed.
    tables : int
    machine : Machine
        `kernel` is what the plain collection needs for an id.
    shared : bool
        Whether all ranks are on one machine, and see each other's tables.

    Examples
    --------
    >>> from rowgrad.torch.distributed import cost
    >>> here = cost.Machine(kernel=40e-9, bandwidth=2.5e9, latency=100e-6, message=50e-6, copy=5e9)
    >>> batch = cost.Batch(bags=2048, ids_per_bag=10, width=64)
    >>> [round(1000 * cost.collection_seconds(16, batch, kind, 26, here), 1) for kind in ("table", "row")]
    [42.1, 146.2]
    """
    sent = collection_bytes(ranks, batch, kind, tables, shared=shared)
    moved = tables * _moved(ranks, placed_bytes(ranks, batch, kind))
    if shared and kind != "replicated":
        moved = tables * batch.bags * batch.width * SIZES[batch.dtype] * batch.train
    count = exchanges(batch, shared=shared and kind != "replicated")
    return _seconds(ranks, tables * batch.ids, sent, moved, count, machine)


def _moved(ranks: int, sent: dict[str, float]) -> float:
    """The bytes of rows and gradients that a rank packs: those that it sends, and those that it keeps."""
    return (sent["rows"] + sent["gradients"]) * ranks / max(ranks - 1, 1)


def _seconds(ranks: int, ids: float, sent: float, moved: float, count: int, machine: Machine) -> float:
    if ranks == 1:
        return ids * machine.kernel
    # A rank stays on its core, so the core with the most ranks is the last to be done.
    shared = ceil(ranks / machine.cores) if machine.cores < ranks else 1
    computing = ids * (machine.kernel + machine.pack) + moved / machine.copy + sent / machine.bandwidth + machine.step
    return computing * shared + count * (machine.latency + (ranks - 1) * machine.message * shared)
