"""Writes docs/_inventories: the names of other projects that this site links to, in Sphinx's format.

The site is then built without a network, and always with the same links. Run it after changing the table below.
"""

import zlib
from pathlib import Path

FOLDER = Path(__file__).parent / "_inventories"
NAMES = {
    "python": {
        "ValueError": ("py:exception", "library/exceptions.html#$"),
        "IndexError": ("py:exception", "library/exceptions.html#$"),
        "TypeError": ("py:exception", "library/exceptions.html#$"),
        "MemoryError": ("py:exception", "library/exceptions.html#$"),
        "Exception": ("py:exception", "library/exceptions.html#$"),
    },
    "numpy": {"numpy.ndarray": ("py:class", "reference/generated/numpy.ndarray.html#$")},
    "torch": {
        "torch.Tensor": ("py:class", "tensors.html#$"),
        "torch.nn.EmbeddingBag": ("py:class", "generated/torch.nn.EmbeddingBag.html#$"),
        "torch.nn.Module": ("py:class", "generated/torch.nn.Module.html#$"),
        "torch.optim.Optimizer": ("py:class", "optim.html#$"),
    },
    "jax": {"jax.Array": ("py:class", "_autosummary/jax.Array.html#$")},
}


def inventory(project: str) -> bytes:
    """The inventory of a project's names."""
    lines = [f"{name} {role} 1 {place} -" for name, (role, place) in sorted(NAMES[project].items())]
    head = f"# Sphinx inventory version 2\n# Project: {project}\n# Version: \n# The rest is compressed by zlib.\n"
    return head.encode() + zlib.compress("".join(f"{line}\n" for line in lines).encode(), 9)


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for project in NAMES:
        (FOLDER / f"{project}.inv").write_bytes(inventory(project))
