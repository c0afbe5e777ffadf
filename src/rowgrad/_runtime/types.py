"""What operators take, for type checkers; the stubs that `docs/stubs.py` writes are made of these.

NumPy arrays fit none of the other kinds: where an argument of type `Any` fits two forms of a function, mypy gives up.
"""

from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

A = TypeVar("A")
Negative = TypeVar("Negative", covariant=True)


class TorchLike(Protocol[Negative]):
    """A tensor of PyTorch, known by what it has: -x is a plain one, also if x is a parameter."""

    @property
    def requires_grad(self) -> bool: ...

    def __neg__(self) -> Negative: ...


class JaxLike(Protocol[Negative]):
    """An array of JAX."""

    @property
    def is_fully_addressable(self) -> bool: ...

    def __neg__(self) -> Negative: ...


NumPy: TypeAlias = npt.NDArray[Any]
Tensor: TypeAlias = TorchLike[A] | JaxLike[A]
# What needs no framework: results are NumPy's.
Listed: TypeAlias = np.generic | bool | int | float | complex | str | bytes | Sequence["Listed | NumPy"]
Plain: TypeAlias = Listed | NumPy
ArrayLike: TypeAlias = npt.ArrayLike | Tensor[Any]
