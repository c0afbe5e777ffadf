"""The snippets of docs/jax.md for Optax, Flax and Equinox, which plain users of JAX need not have, are run."""

import re
from pathlib import Path

import pytest

from optional import framework

framework("jax")

TEXT = (Path(__file__).parents[2] / "docs" / "jax.md").read_text(encoding="utf-8")
SNIPPETS = re.findall(r"^```py\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("library", ["optax", "flax", "equinox"])
@pytest.mark.slow
def test_snippets(library: str) -> None:
    (code,) = (code for code in SNIPPETS if f"import {library}" in code or f"from {library}" in code)
    framework(library)
    exec(compile(code, "docs/jax.md", "exec"), {})
