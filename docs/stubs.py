"""The stubs that type checkers and editors read, written from the catalogue: what is made when a package is loaded is
declared here. `generate.py` writes them.
"""

import ast
from collections.abc import Mapping
from inspect import Signature
from pathlib import Path
from typing import Any

import rowgrad
from rowgrad._ops import OPERATORS, Operator
from rowgrad._ops.callables import by_function, function_signature, raw_signature, top_level
from rowgrad.blocks import operators

HEADER = '"""Written by `make docs` from the catalogue; do not edit."""\n\n'
SOURCE = Path("src/rowgrad")


def stubs() -> dict[Path, str]:
    """Every stub, by its path."""
    return {
        SOURCE / "__init__.pyi": _top(),
        SOURCE / "raw_ops.pyi": _raw_ops(OPERATORS),
        SOURCE / "blocks" / "raw_ops.pyi": _raw_ops(operators.OPERATORS),
    }


def _top() -> str:
    """The top level: what `__init__.py` imports, the submodules that are loaded on first use, and the functions."""
    names = top_level()
    modules = [name for name in rowgrad.__all__ if _is_module(name)] + list(rowgrad._FRONT_ENDS)
    imports = "".join(f"from rowgrad import {name} as {name}\n" for name in sorted(modules))
    imports += _imports(SOURCE / "__init__.py") + "from rowgrad.tables import Table as Table\n"
    return f"{HEADER}from typing import Any\n\n{imports}\n__version__: str\n{_all(rowgrad.__all__)}\n" + "".join(
        _stub(name, by_function()[name][-1], function_signature(by_function()[name])) for name in names
    )


def _raw_ops(operators: Mapping[str, Operator]) -> str:
    results = {operator.result for operator in operators.values() if operator.result}
    body = "".join(_stub(name, operator, raw_signature(operator)) for name, operator in sorted(operators.items()))
    return f"{HEADER}from typing import Any\n\n{_imported(results)}{_all(sorted(operators))}\n{body}"


def _imported(results: set[type]) -> str:
    """The imports of the named tuples that operators give."""
    modules = sorted({result.__module__ for result in results})
    names = {module: sorted(result.__name__ for result in results if result.__module__ == module) for module in modules}
    return "".join(f"from {module} import {', '.join(names[module])}\n" for module in modules)


def _is_module(name: str) -> bool:
    path = Path(rowgrad.__file__).parent / name
    return path.is_dir() or path.with_suffix(".py").exists()


def _imports(path: Path) -> str:
    """The public names that the module at `path` imports, as a stub passes them on."""
    found = []
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("rowgrad."):
            names = [alias.name for alias in node.names if not (alias.asname or "").startswith("_")]
            found += [f"from {node.module} import {name} as {name}\n" for name in names]
    return "".join(found)


def _all(names: list[str]) -> str:
    return "__all__ = [\n" + "".join(f'    "{name}",\n' for name in names) + "]\n"


def _stub(name: str, operator: Operator, signature: Signature) -> str:
    result = operator.result.__name__ if operator.result else "Any"
    typed = Signature([parameter.replace(annotation=Any) for parameter in signature.parameters.values()])
    return f"def {name}{str(typed).replace('typing.Any', 'Any')} -> {result}: ...\n"
