"""The stubs that type checkers and editors read, written from the catalogue: functions that are made when a package is
loaded are declared here, with types. `generate.py` writes them; nothing here loads a framework.

A function of `rowgrad` gives arrays of the kind of its first argument that is an array: NumPy's, a framework's, or, for
lists and numbers, NumPy's again, unless what follows them is a framework's.
"""

import ast
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Any

import rowgrad
from rowgrad._ops import OPERATORS, Operator
from rowgrad._ops.callables import by_function, function_attributes, function_signature, raw_signature, top_level
from rowgrad._ops.embedding_lookup import embedding_lookup, embedding_lookup_sparse, safe_embedding_lookup_sparse
from rowgrad._ops.tensors_map import MAPS
from rowgrad.blocks import operators as page_operators
from rowgrad.blocks import raw_ops as page_raw_ops

ROOT = Path(__file__).parent.parent
SOURCE = Path("src/rowgrad")
HEADER = '"""Written by `make docs` from the catalogue; do not edit."""\n\n'
TYPES = "from collections.abc import Sequence\nfrom typing import Any, overload\n\nimport numpy.typing as npt\n\n"
# What the first input is, what the others are, and what comes out.
FORMS = (
    ("NumPy", "ArrayLike", "NumPy"),
    ("Tensor[A]", "ArrayLike", "A"),
    ("Listed", "Plain", "NumPy"),
    ("Sequence[Any] | complex", "ArrayLike", "Any"),
    ("npt.ArrayLike", "ArrayLike", "NumPy"),
)
ATTRIBUTES = {
    "bool": "bool", "int": "int", "float": "float", "text": "str", "dtype": "npt.DTypeLike",
    "shape": "Sequence[int | str]", "list": "Sequence[int | str]", "numbers": "Sequence[float]", "value": "Any",
}  # fmt: skip
LOOKUPS: tuple[Callable[..., Any], ...] = (embedding_lookup, embedding_lookup_sparse, safe_embedding_lookup_sparse)
PLANNED = ("indices", "segment_ids")  # may be None where a plan is given


def stubs() -> dict[Path, str]:
    """Every stub, by its path."""
    files = {
        SOURCE / "__init__.pyi": _top(),
        SOURCE / "raw_ops.pyi": _raw_ops({**OPERATORS, **MAPS}, ("RaggedGather", "SparseSplit")),
        SOURCE / "blocks/raw_ops.pyi": _raw_ops(
            {**page_operators.OPERATORS, **MAPS}, ("Concat", "ConcatOffset", "RaggedGather", "SparseSplit")
        ),
        SOURCE / "torch/__init__.pyi": _torch(),
        SOURCE / "jax/__init__.pyi": _jax(),
        SOURCE / "tensorflow/__init__.pyi": _tensorflow(),
    }
    every = [*OPERATORS.values(), *page_operators.OPERATORS.values()]
    for module in sorted({operator.result.__module__ for operator in every if operator.result}):
        files[Path("src", *module.split(".")).with_suffix(".pyi")] = _results(module)
    return files


def _top() -> str:
    modules = sorted(["errors", *rowgrad._SUBMODULES, *rowgrad._FRONT_ENDS])
    parts = [
        HEADER + TYPES,
        "".join(f"from rowgrad import {name} as {name}\n" for name in modules),
        "from rowgrad._runtime.types import A, ArrayLike, Listed, NumPy, Plain, Tensor\n",
        _imports(SOURCE / "__init__.py", {function.__name__ for function in LOOKUPS}),
        "from rowgrad.sparse import SparseTensor as SparseTensor\n"
        "from rowgrad.tables import KeyTable as KeyTable\n"
        "from rowgrad.tables import Table as Table\n"
        "from rowgrad.tables import TableSet as TableSet\n\n__version__: str\n",
        _all(rowgrad.__all__),
    ]
    for name in top_level():
        operators = by_function()[name]
        parts.append(_overloads(name, operators[-1], function_signature(operators)))
    return "".join([*parts, *map(_lookup, LOOKUPS)])


def _raw_ops(operators: Mapping[str, Operator], lists: tuple[str, ...] = ()) -> str:
    """The operators, and functions that give lists of arrays."""
    operators = {operator.raw_name: operator for operator in operators.values()}
    text = "".join([
        HEADER + TYPES,
        _import_results(operators.values()),
        "from rowgrad._runtime.types import A, ArrayLike, Listed, NumPy, Plain, Tensor\n",
        _all(sorted([*operators, *lists])),
        *(_def(name, [_as_written(p) for p in signature(getattr(page_raw_ops, name)).parameters.values()], "Any")
          for name in lists),
        *(_overloads(name, operator, raw_signature(operator)) for name, operator in sorted(operators.items())),
    ])  # fmt: skip
    for name in {o.result.__name__ for o in operators.values() if o.result} & set(operators):
        # An operator has the name of the result of another one.
        text = text.replace(f"import {name}\n", f"import {name} as {name}Result\n")
        text = text.replace(f"> {name}[", f"> {name}Result[")
    return text


def _torch() -> str:
    """Inputs of all kinds, attributes as of `raw_ops`, and tensors."""
    path = SOURCE / "torch/__init__.py"

    def stub(name: str, operators: list[Operator]) -> str:
        attributes = [p for p in raw_signature(operators[-1]).parameters.values() if p.name != "name"]
        settings = [p for p in attributes if p.kind is Parameter.KEYWORD_ONLY]
        return _function(name, operators, settings, "torch.Tensor")

    return "".join([
        HEADER + "from collections.abc import Sequence\nfrom typing import Any\n\nimport torch\n\n",
        _import_results(OPERATORS.values()),
        "from rowgrad._runtime.types import ArrayLike\nfrom rowgrad.torch import distributed as distributed\n",
        _imports(path) + _all(_listed(path)),
        *(stub(name, by_function()[name]) for name in top_level()),
    ])  # fmt: skip


def _jax() -> str:
    """Inputs of all kinds, the most rows of a compact gradient, and JAX's arrays."""
    path = SOURCE / "jax/__init__.py"

    def stub(name: str, operators: list[Operator]) -> str:
        compact = operators[-1].result is rowgrad.RowGradient
        most = Parameter("max_unique", Parameter.KEYWORD_ONLY, default=None)
        attributes = function_attributes(operators[-1])
        settings = [p for p in function_signature(operators).parameters.values() if p.name in attributes]
        return _function(name, operators, [*settings, *[most] * compact], "jax.Array")

    return "".join([
        HEADER + "from collections.abc import Sequence\nfrom typing import Any\n\nimport jax\n\n",
        _import_results(OPERATORS.values()),
        "from rowgrad._runtime.types import ArrayLike\n",
        _imports(path) + _all(_listed(path)),
        *(stub(name, by_function()[name]) for name in top_level()),
    ])  # fmt: skip


def _tensorflow() -> str:
    """Inputs of all kinds, and tensors; look-ups have TensorFlow's arguments."""
    path = SOURCE / "tensorflow/__init__.py"

    def stub(name: str, operators: list[Operator]) -> str:
        attributes = function_attributes(operators[-1])
        settings = [p for p in function_signature(operators).parameters.values() if p.name in attributes]
        return _function(name, operators, settings, "tf.Tensor")

    lookups = ["embedding_lookup_sparse", "patch", "safe_embedding_lookup_sparse"]
    return "".join([
        HEADER + "from collections.abc import Sequence\nfrom typing import Any\n\nimport tensorflow as tf\n\n",
        _import_results(OPERATORS.values()),
        "from rowgrad._runtime.types import ArrayLike\n",
        _imports(path),
        *(f"from rowgrad.tensorflow._lookups import {name} as {name}\n" for name in lookups),
        _all(sorted([*lookups, *_listed(path)])),
        *(stub(name, by_function()[name]) for name in top_level()),
    ])  # fmt: skip


def _function(name: str, operators: list[Operator], settings: list[Parameter], array: str) -> str:
    """A function of a front end."""
    inputs = [p for p in function_signature(operators).parameters.values() if p.kind is not Parameter.KEYWORD_ONLY]
    typed = [_typed(operators[-1], p, "ArrayLike", array) for p in (*inputs, *settings)]
    return _def(name, typed, _result(operators[-1], array))


def _overloads(name: str, operator: Operator, given: Signature) -> str:
    first, *others = given.parameters.values()
    written = []
    for leading, following, array in FORMS:
        typed = [_typed(operator, first, leading, array), *(_typed(operator, p, following, array) for p in others)]
        if "plan" in given.parameters:
            typed = [_optional(p) if p.name in PLANNED else p for p in typed]
        written.append("@overload\n" + _def(name, typed, _result(operator, array)))
    return "".join(written)


def _lookup(function: Callable[..., Any]) -> str:
    """An embedding look-up, whose result is of the kind of its table."""
    first, *others = signature(function).parameters.values()
    forms = [
        "@overload\n" + _def(function.__name__, [first.replace(annotation=leading), *map(_as_written, others)], array)
        for leading, _, array in FORMS
    ]
    return "".join(forms)


def _as_written(parameter: Parameter) -> Parameter:
    kind = parameter.annotation
    return parameter.replace(annotation=kind.__name__ if isinstance(kind, type) else str(kind).replace("typing.", ""))


def _typed(operator: Operator, parameter: Parameter, kind: str, array: str) -> Parameter:
    """`parameter` with the type of its pin (`kind`), attribute or option."""
    pins = {pin.name: pin for pin in operator.inputs}
    attributes = {attribute.name: attribute for attribute in operator.attributes}
    name = parameter.name
    if name in pins:
        kind = f"Sequence[{kind}]" if pins[name].many else kind
        none = parameter.default is None
    elif name in attributes:
        kind, none = ATTRIBUTES[attributes[name].kind], parameter.default is None
        kind = "torch.dtype | str" if (kind, array) == ("npt.DTypeLike", "torch.Tensor") else kind
    elif name == "max_unique":
        kind, none = "int", True
    else:
        kind, none = {"out": array, "plan": "Plan", "name": "str"}[name], True
    typed = parameter.replace(annotation=kind)
    return _optional(typed) if none else typed


def _optional(parameter: Parameter) -> Parameter:
    kind = parameter.annotation
    return parameter if kind == "Any" else parameter.replace(annotation=f"{kind} | None")


def _result(operator: Operator, array: str) -> str:
    return f"{operator.result.__name__}[{array}]" if operator.result else array


def _def(name: str, parameters: list[Parameter], result: str) -> str:
    written = []
    for parameter in parameters:
        if parameter.kind is Parameter.KEYWORD_ONLY and "*" not in written:
            written.append("*")
        default = "" if parameter.default is Parameter.empty else f" = {parameter.default!r}"
        written.append(f"{parameter.name}: {parameter.annotation}{default}")
    return f"def {name}({', '.join(written)}) -> {result}: ...\n"


def _results(module: str) -> str:
    """The named tuples of `module`, of any kind of array."""
    classes = [item for item in vars(import_module(module)).values() if hasattr(item, "_fields")]
    parts = [HEADER + "from typing import Any, Generic, NamedTuple\n\nfrom typing_extensions import TypeVar\n\n"]
    parts.append('A = TypeVar("A", default=Any)\n')
    for item in classes:
        # Tuples have methods of these names, which the fields hide.
        hides = dict.fromkeys(("count", "index"), "  # type: ignore[assignment]")
        fields = "".join(f"    {name}: A{hides.get(name, '')}\n" for name in item._fields)
        parts.append(f'\nclass {item.__name__}(NamedTuple, Generic[A]):\n    """{item.__doc__}"""\n\n{fields}')
    return "".join(parts)


def _import_results(operators: Iterable[Operator]) -> str:
    found = sorted({(o.result.__module__, o.result.__name__) for o in operators if o.result})
    return "".join(f"from {module} import {name}\n" for module, name in found)


def _imports(path: Path, without: Iterable[str] = ()) -> str:
    """What the package at `path` imports and passes on."""
    found = []
    for node in ast.parse((ROOT / path).read_text()).body:
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("rowgrad."):
            names = [alias.name for alias in node.names if alias.asname is None and alias.name not in without]
            found += [f"from {node.module} import {name} as {name}\n" for name in names]
    return "".join(found)


def _listed(path: Path) -> list[str]:
    """`__all__` of the front end at `path`: the names that are written there, and the functions."""
    for node in ast.parse((ROOT / path).read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return sorted([*ast.literal_eval(node.value), *top_level()])
    raise ValueError(f"{path} has no __all__")


def _all(names: list[str]) -> str:
    return "\n__all__ = [\n" + "".join(f'    "{name}",\n' for name in names) + "]\n\n"
