"""The pages of classes and functions in docs/api/: each public name of a module, once; Sphinx reads the docstrings.

Operators have pages of their own, so their functions are only named here. Names are read from the sources, because the
frameworks that some modules import need not be installed.
"""

import ast
from pathlib import Path

from rowgrad._ops.callables import top_level

ROOT = Path(__file__).parent.parent
MODULES = {
    "rowgrad": "Look-ups, ragged tensors, plans, tables on disk, threads.",
    "rowgrad.sparse": "Sparse tensors, with the names of `tf.sparse`.",
    "rowgrad.features": "Hashes, buckets, crosses and vocabularies, TensorFlow's to the bit.",
    "rowgrad.optim": "Optimizers that change only the rows that a gradient has.",
    "rowgrad.torch": "Layers, collections and optimizers for PyTorch.",
    "rowgrad.torch.data": "Data sets over Parquet and Arrow files.",
    "rowgrad.torch.distributed": "Tables that are spread over ranks.",
    "rowgrad.jax": "Pooled look-ups and training on rows for JAX.",
    "rowgrad.keras": "Layers for Keras 3, on its three backends.",
    "rowgrad.tensorflow": "Checkpoints without TensorFlow; differentiable functions and look-ups with it.",
    "rowgrad.blocks": "Pages, blocks and sessions.",
    "rowgrad.errors": "Every error is a `RowgradError`.",
}


def api_pages() -> dict[Path, str]:
    """Every page and its text."""
    return {Path(f"docs/api/{module.removeprefix('rowgrad.')}.md"): _page(module) for module in MODULES}


def _page(module: str) -> str:
    names = public_names(module)
    blocks = "\n\n".join(_documented(module, name) for name in names)
    parts = [f"# {module}", MODULES[module]]
    if module in ("rowgrad", "rowgrad.torch", "rowgrad.jax", "rowgrad.tensorflow"):
        parts.append("The functions of operators are in [the reference of operators](../operators/index.md).")
    parts.append("```{eval-rst}\n.. currentmodule:: " + module + "\n\n" + blocks + "\n```")
    return "\n\n".join(parts) + "\n"


def _documented(module: str, name: str) -> str:
    if (name[0].isupper() and not name.isupper()) or name in CLASSES_IN_CAPITALS:
        return f".. autoclass:: {module}.{name}\n   :members:\n   :show-inheritance:"
    return f".. autofunction:: {module}.{name}"


CLASSES_IN_CAPITALS = {"FTRL", "LAMB", "SGD"}
NOT_DOCUMENTED = {"OPTIMIZERS", "blocks", "distributed", "errors", "features", "optim", "raw_ops", "sparse", "tables"}


def public_names(module: str) -> list[str]:
    """What the module's `__all__` lists, without operators, submodules and constants; errors are on one page only."""
    path = ROOT / "src" / Path(*module.split("."))
    text = (path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text(encoding="utf-8")
    names: list[str] = []
    for node in ast.parse(text).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) in ("__all__", "_LOOKUPS"):
            names += ast.literal_eval(node.value)
    errors = () if module == "rowgrad.errors" else tuple(name for name in names if name.endswith("Error"))
    left_out = {*top_level(), *NOT_DOCUMENTED, *(errors if module == "rowgrad" else ())}
    left_out |= {"SparseTensor"} if module == "rowgrad" else set()  # it is on the page of `rowgrad.sparse`
    return sorted({name for name in names if name not in left_out}, key=lambda name: (name[0].islower(), name))
