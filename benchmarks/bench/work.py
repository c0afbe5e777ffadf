"""What is measured: each piece of work by operation, size and type, and who else can do it.

No arrays here (see `data`), and no framework; the list can be read, filtered and tested without running anything.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase

THREADS = 2  # for everyone
OURS = "rowgrad"

# The operators by the short names that work is called by.
OPERATORS = {
    "mean_grad_v2": "SparseSegmentMeanGradV2",
    "mean_grad": "SparseSegmentMeanGrad",
    "sum_grad": "SparseSegmentSumGrad",
    "mean": "SparseSegmentMean",
    "row_update": "SparseSegmentMeanGradV2 and row update",
    "train_row_wise": "training step with row-wise Adagrad",
    "train_adagrad": "training step with Adagrad",
    "train_adam": "training step with Adam on rows",
    "train_sgd": "training step with gradient descent",
    "fill": "SparseFillEmptyRows",
    "fill_grad": "SparseFillEmptyRowsGrad",
    "slice": "SparseSlice",
    "slice_grad": "SparseSliceGrad",
}


@dataclass(frozen=True)
class Bags:
    """A batch of pooled look-ups: `bags` bags of `ids_per_bag` ids into a table of `rows` × `width`."""

    rows: int
    width: int
    bags: int
    ids_per_bag: int
    distribution: str = "uniform"  # or "zipf": row r is drawn with a probability like (r + 1) ** -1.2
    shuffled: bool = False  # whether the (id, bag) pairs come in any order; else bag after bag
    dtype: str = "float32"
    ids: str = "int64"
    aligned: bool = True  # whether our arrays begin with a cache line, as the tensors of frameworks do

    @property
    def size(self) -> int:
        """How many ids there are."""
        return self.bags * self.ids_per_bag

    @property
    def name(self) -> str:
        """Short, and unique among the shapes."""
        return f"{short(self.rows)}-{self.width}-{self.distribution}"

    @property
    def title(self) -> str:
        """For tables that people read."""
        batch = f"{self.bags:,} × {self.ids_per_bag}"
        return f"{short(self.rows)} × {self.width}, {batch}, {self.distribution}"


@dataclass(frozen=True)
class Entries:
    """A sparse matrix of `size` entries, float32, in row order."""

    size: int

    @property
    def name(self) -> str:
        """Short, and unique among the sizes."""
        return short(self.size)

    @property
    def title(self) -> str:
        """For tables that people read."""
        return f"{self.size:,} entries"


@dataclass(frozen=True)
class Work:
    """One contest: an operation on some input, the peers that can do it, and variants of ours to compare it with.

    `group` is the table it is shown in. A variant is the same operation on other types or with other threads; its time
    is put beside ours as a peer's would be.
    """

    operation: str
    group: str
    input: Bags | Entries
    rivals: tuple[str, ...] = ()
    variants: dict[str, "Work"] = field(default_factory=dict, hash=False)
    label: str = ""
    threads: int = THREADS
    needs: str = ""  # the framework that ours cannot do without

    @property
    def name(self) -> str:
        """What `--only` is matched with."""
        return "/".join(part for part in (self.operation, self.label or self.input.name, self.suffix) if part)

    @property
    def bags(self) -> Bags:
        """The look-ups it works on, where it does."""
        assert isinstance(self.input, Bags)
        return self.input

    @property
    def suffix(self) -> str:
        """What sets it apart from the plain work on the same input."""
        if self.threads != THREADS or self.group == "threads":
            return "threads"
        if isinstance(self.input, Entries):
            return ""
        bags = self.input
        words = ("shuffled" * bags.shuffled, bags.dtype * (bags.dtype != "float32"), bags.ids * (bags.ids != "int64"),
                 "unaligned" * (not bags.aligned))  # fmt: skip
        return "-".join(word for word in words if word)


def short(number: int) -> str:
    """1000000 as 1M."""
    for unit, letter in ((10**6, "M"), (10**3, "k")):
        if number >= unit and number % unit == 0:
            return f"{number // unit}{letter}"
    return str(number)


SHAPES = (
    Bags(100_000, 64, 4096, 20, "zipf"),
    Bags(1_000_000, 64, 8192, 30, "zipf"),
    Bags(1_000_000, 16, 65536, 10),
    Bags(10_000_000, 32, 8192, 50),
    Bags(1_000, 128, 32768, 8),
)
LARGE = SHAPES[1:]  # where a second thread must pay
SMALL = Bags(1000, 16, 8, 4)
WIDTHS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
SIZES = (1_000, 10_000, 100_000, 1_000_000, 10_000_000)
ENTRIES = (1_000, 1_000_000, 10_000_000)
SPARSE = ("fill", "fill_grad", "slice", "slice_grad")
FORWARD_AND_BACK = {
    "mean_grad_v2": ("tensorflow", "torch"),
    "mean_grad": ("tensorflow", "torch", "jax"),
    "mean": ("tensorflow", "torch", "jax"),
    "row_update": ("fbgemm",),
    "sum_grad": ("scipy",),
}
# Forward, backward and the update of the table, by layers of PyTorch.
TRAINING = {"train_row_wise": ("fbgemm",), "train_adagrad": ("torch",), "train_adam": ("torch",)}
BARE = "kernels alone"


def sized(size: int) -> Bags:
    """A batch of `size` ids for the table that growth is measured on."""
    return Bags(1_000_000, 64, size // 20, 20)


def all_work() -> list[Work]:
    """Everything, in the order of the report."""
    return [*_shapes(SHAPES), *_variants(SHAPES), *_sweeps(), *_entries(ENTRIES)]


def quick_work() -> list[Work]:
    """A sample of every operation, small enough for a minute."""
    shapes = (SHAPES[0], SHAPES[4])
    return [*_shapes(shapes), _small(), _small_step(), *_entries((100_000,))]


def matching(works: list[Work], pattern: str) -> list[Work]:
    """The work whose name contains `pattern`, in which * and ? stand for anything."""
    return [work for work in works if fnmatchcase(work.name, f"*{pattern}*")]


def _shapes(shapes: tuple[Bags, ...]) -> Iterator[Work]:
    # Shape by shape, so that each batch and table is made once.
    for shape in shapes:
        for operation, rivals in FORWARD_AND_BACK.items():
            yield Work(operation, operation, shape, rivals)
        for operation, rivals in TRAINING.items():
            yield Work(operation, operation, shape, rivals, needs="torch")


def _variants(shapes: tuple[Bags, ...]) -> Iterator[Work]:
    """Ours against ours: other types, another number of threads; bags in any order; arrays as NumPy places them."""
    for shape in shapes:
        plain = Work("mean_grad_v2", "variants", shape)
        # PyTorch's bags are contiguous, and its bfloat16 sums stop growing at 256; neither can take part.
        yield Work("mean_grad_v2", "shuffled", replace(shape, shuffled=True), ("tensorflow",))
        yield Work("mean_grad_v2", "bfloat16", replace(shape, dtype="bfloat16"), ("tensorflow",), {"float32": plain})
        yield Work("mean_grad_v2", "int32", replace(shape, ids="int32"), ("tensorflow",), {"int64": plain})
        yield Work("mean", "unaligned", replace(shape, aligned=False), FORWARD_AND_BACK["mean"][:2])
        yield Work("mean_grad_v2", "threads", shape, (), {"one thread": replace(plain, threads=1)})


def _small() -> Work:
    return Work("mean_grad_v2", "small", SMALL, ("tensorflow", "torch"), label="small")


def _small_step() -> Work:
    """What the layer takes beside the kernels that do its work."""
    bare = Work("train_sgd", "layer", SMALL, label="bare")
    return Work("train_sgd", "layer", SMALL, (), {BARE: bare}, label="small", needs="torch")


def _sweeps() -> Iterator[Work]:
    rivals = FORWARD_AND_BACK["mean_grad_v2"]
    yield _small()
    yield _small_step()
    for width in WIDTHS:
        yield Work("mean_grad_v2", "width", replace(SHAPES[0], width=width), rivals, label=f"width-{width}")
    for size in SIZES:
        yield Work("mean_grad_v2", "ids", sized(size), rivals, label=f"ids-{short(size)}")


def _entries(sizes: tuple[int, ...]) -> Iterator[Work]:
    for size in sizes:
        for operation in SPARSE:
            yield Work(operation, operation, Entries(size), ("tensorflow",))
