"""`EmbeddingBagConfig`: what a table of a collection is, with TorchRec's names; its settings, checked."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from rowgrad._ops import combiners
from rowgrad._runtime.texts import is_text
from rowgrad.errors import DTypeError, InvalidArgumentError
from rowgrad.optim import Optimizer
from rowgrad.torch._settings import size

DTYPES = {"FP32": torch.float32, "FP16": torch.float16, "BF16": torch.bfloat16}  # as TorchRec names them
FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
UNSUPPORTED = {"max_norm": None, "padding_idx": None, "scale_grad_by_freq": False}  # of nn.EmbeddingBag


@dataclass
class EmbeddingBagConfig:
    """A table of an `EmbeddingBagCollection`.

    Parameters
    ----------
    name : str
        The name of the table, also in the state_dict.
    num_embeddings, embedding_dim : int
        Its rows and columns.
    feature_names : list of str
        The features that are looked up in it; by default one, named as the table.
    pooling : {"sum", "mean", "sqrtn"}
        How the rows of a bag are reduced to one; TorchRec's `PoolingType` is accepted too.
    data_type : torch.dtype
        float32, float64, float16 or bfloat16; TorchRec's `DataType` is accepted too.
    weight_init_min, weight_init_max : float, optional
        A new table is drawn from the uniform distribution between them, by default ±sqrt(1 / embedding_dim).
    init_fn : callable, optional
        Initializes a new table instead.

    Examples
    --------
    >>> from rowgrad.torch import EmbeddingBagConfig
    >>> EmbeddingBagConfig("products", 1000, 16, ["clicked", "bought"], "mean").num_features()
    2
    """

    name: str
    num_embeddings: int
    embedding_dim: int
    feature_names: list[str] = field(default_factory=list)
    pooling: Any = "sum"
    data_type: Any = field(default=torch.float32, kw_only=True)
    weight_init_max: float | None = field(default=None, kw_only=True)
    weight_init_min: float | None = field(default=None, kw_only=True)
    init_fn: Callable[[Tensor], Any] | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if (
            not isinstance(self.name, str)
            or not is_text(self.name)
            or not self.name
            or "." in self.name
            or (hasattr(nn.ModuleDict(), self.name))
        ):
            raise InvalidArgumentError(
                f"name is {self.name!r}; it must be a text without dots that is no attribute of torch.nn.ModuleDict, "
                "as 'items' and 'type' are. Rename the table.",
                code="bad-name",
                argument="name",
                value=self.name,
            )
        size("num_embeddings", self.num_embeddings)
        size("embedding_dim", self.embedding_dim)
        if isinstance(self.feature_names, str):
            raise DTypeError(
                f"feature_names is {self.feature_names!r}; it must be a list of names. Pass [{self.feature_names!r}].",
                code="wrong-dtype",
                argument="feature_names",
                value=self.feature_names,
            )
        names = list(self.feature_names) if isinstance(self.feature_names, Iterable) else [None]
        if not all(isinstance(name, str) for name in names):
            raise DTypeError(
                f"feature_names is {self.feature_names!r}; it must be a list of names.",
                code="wrong-dtype",
                argument="feature_names",
                value=str(self.feature_names),
            )
        self.feature_names = names or [self.name]
        pooling = getattr(self.pooling, "value", self.pooling)
        self.pooling = pooling.lower() if isinstance(pooling, str) else pooling
        combiners.check(self.pooling)
        data_type = getattr(self.data_type, "value", self.data_type)
        self.data_type = DTYPES.get(data_type, data_type) if isinstance(data_type, str) else data_type
        if self.data_type not in FLOATS:
            raise DTypeError(
                f"data_type is {self.data_type}; allowed: {', '.join(str(each) for each in FLOATS)}.",
                code="wrong-dtype",
                argument="data_type",
                value=str(self.data_type),
            )

        self._check_beginning()

    def _check_beginning(self) -> None:
        """What a new table is filled with."""
        if not (self.init_fn is None or callable(self.init_fn)):
            raise DTypeError(
                f"init_fn is {self.init_fn!r}; it must be a function that fills a tensor, or None.",
                code="wrong-dtype",
                argument="init_fn",
                value=str(self.init_fn),
            )
        for name in ("weight_init_min", "weight_init_max"):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, int | float) and math.isfinite(value)):
                raise InvalidArgumentError(
                    f"{name} is {value!r}; it must be a finite number.",
                    code="wrong-argument",
                    argument=name,
                    value=str(value),
                )
        if self.get_weight_init_min() > self.get_weight_init_max():
            raise InvalidArgumentError(
                f"weight_init_min is {self.get_weight_init_min():g}, above weight_init_max, "
                f"{self.get_weight_init_max():g}. Give both.",
                code="wrong-argument",
                argument="weight_init_min",
                value=self.weight_init_min,
            )

    def num_features(self) -> int:
        """How many features are looked up in the table."""
        return len(self.feature_names)

    def get_weight_init_max(self) -> float:
        """The largest value of a new table."""
        return self._reach() if self.weight_init_max is None else self.weight_init_max

    def get_weight_init_min(self) -> float:
        """The smallest value of a new table."""
        return -self._reach() if self.weight_init_min is None else self.weight_init_min

    def fill(self, weight: Tensor) -> None:
        """Fill a new table."""
        with torch.no_grad():
            if self.init_fn is not None:
                self.init_fn(weight)
            else:
                weight.uniform_(self.get_weight_init_min(), self.get_weight_init_max())

    def _reach(self) -> float:
        return math.sqrt(1 / max(self.embedding_dim, 1))


def checked(tables: Sequence[Any]) -> list[EmbeddingBagConfig]:
    """The tables of a collection; those of TorchRec, recognised by their attributes, as rowgrad's."""
    if isinstance(tables, str | Mapping) or not isinstance(tables, Iterable):
        raise DTypeError(
            f"tables is a {type(tables).__name__}; pass a list of EmbeddingBagConfig.",
            code="wrong-dtype",
            argument="tables",
            value=type(tables).__name__,
        )
    found: list[EmbeddingBagConfig] = []
    for i, table in enumerate(tables):
        if not isinstance(table, EmbeddingBagConfig):
            names = ("name", "num_embeddings", "embedding_dim", "feature_names", "pooling")
            if not all(hasattr(table, name) for name in names):
                raise DTypeError(
                    f"tables[{i}] is a {type(table).__name__}; pass an EmbeddingBagConfig.",
                    code="wrong-dtype",
                    argument="tables",
                    position=i,
                    value=type(table).__name__,
                )
            more = {name: getattr(table, name) for name in ("data_type", "init_fn") if hasattr(table, name)}
            table = EmbeddingBagConfig(*(getattr(table, name) for name in names), **more)
        if any(table.name == each.name for each in found):
            raise InvalidArgumentError(
                f"tables[{i}] is named {table.name!r}, as another table is. Rename one of them.",
                code="repeated-key",
                argument="tables",
                position=i,
                value=table.name,
            )
        if len(set(table.feature_names)) != len(table.feature_names):
            raise InvalidArgumentError(
                f"tables[{i}] has the features {table.feature_names}; each may occur once. Leave the repeated one out.",
                code="repeated-key",
                argument="tables",
                position=i,
                value=table.feature_names,
            )
        found.append(table)
    if not found:
        raise InvalidArgumentError(
            "tables is empty. Pass at least one EmbeddingBagConfig.", code="missing-argument", argument="tables"
        )
    return found


def names_of(tables: list[EmbeddingBagConfig]) -> list[str]:
    """The key of each pooled feature: its name, or name@table where several tables have it."""
    features = [name for table in tables for name in table.feature_names]
    return [
        f"{name}@{table.name}" if features.count(name) > 1 else name for table in tables for name in table.feature_names
    ]


def optimizers_of(given: Any, tables: list[EmbeddingBagConfig]) -> list[Optimizer | None]:
    """The optimizer of each table, from one for all or a dict by table."""
    if given is None or isinstance(given, Optimizer):
        return [given] * len(tables)
    if not isinstance(given, Mapping):
        raise DTypeError(
            f"fused_optimizer is a {type(given).__name__}; pass one of rowgrad.optim, such as optim.Adagrad(lr=0.1), "
            "or a dict of table name to optimizer.",
            code="wrong-dtype",
            argument="fused_optimizer",
            value=type(given).__name__,
        )
    names = [table.name for table in tables]
    for name, optimizer in given.items():
        if name not in names or not (optimizer is None or isinstance(optimizer, Optimizer)):
            raise InvalidArgumentError(
                f"fused_optimizer has {optimizer!r} for {name!r}; allowed: an optimizer of rowgrad.optim, or None, for "
                f"the tables {', '.join(map(repr, names))}.",
                code="unknown-key" if name not in names else "wrong-argument",
                argument="fused_optimizer",
                value=name,
            )
    missing = [name for name in names if name not in given]
    if missing:
        raise InvalidArgumentError(
            f"fused_optimizer has nothing for the table {missing[0]!r}. Add an optimizer, or None for a table that "
            "torch.optim trains.",
            code="missing-argument",
            argument="fused_optimizer",
            value=missing[0],
        )
    return [given[name] for name in names]


def from_modules(
    modules: Any, feature_names: Mapping[str, Sequence[str]] | None
) -> tuple[list[EmbeddingBagConfig], list[nn.EmbeddingBag]]:
    """What describes the tables of PyTorch's layers."""
    if isinstance(modules, Mapping | nn.ModuleDict):
        named = dict(modules.items())
    elif isinstance(modules, Iterable) and not isinstance(modules, str):
        named = {f"t{i}": each for i, each in enumerate(modules)}
    else:
        raise DTypeError(
            f"modules is a {type(modules).__name__}; pass a list of torch.nn.EmbeddingBag, or a dict by name.",
            code="wrong-type",
            argument="modules",
            value=type(modules).__name__,
        )
    tables = []
    for name, module in named.items():
        if not isinstance(module, nn.EmbeddingBag):
            raise DTypeError(
                f"modules[{name!r}] is a {type(module).__name__}; from_torch takes layers of torch.nn.EmbeddingBag.",
                code="wrong-type",
                argument="modules",
                value=type(module).__name__,
            )
        for setting, usual in UNSUPPORTED.items():
            if getattr(module, setting) != usual:
                raise InvalidArgumentError(
                    f"modules[{name!r}] has {setting}={getattr(module, setting)!r}, which a collection does not have. "
                    "Use rowgrad.torch.EmbeddingBag.from_torch for this layer.",
                    code="wrong-argument",
                    argument="modules",
                    value=setting,
                )
        features = list((feature_names or {}).get(name, [name]))
        rows, columns = module.num_embeddings, module.embedding_dim
        tables.append(EmbeddingBagConfig(name, rows, columns, features, module.mode, data_type=module.weight.dtype))
    return tables, list(named.values())
