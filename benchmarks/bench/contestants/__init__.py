"""The contestants, one module each, loaded when asked for.

A module has `start(threads)`, called once, and `entry(work)`, which gives its way to do `work`. Each peer goes the best
way its documentation names, on inputs that are its own tensors before the clock starts.
"""

from collections.abc import Iterable
from importlib import import_module, util
from importlib.metadata import PackageNotFoundError, version
from types import ModuleType
from typing import NamedTuple

from bench.work import OURS, THREADS


class Peer(NamedTuple):
    """What users call a peer, the module to look for, and the distribution to install."""

    title: str
    module: str
    distribution: str


PEERS = {
    "tensorflow": Peer("TensorFlow", "tensorflow", "tensorflow-cpu"),
    "torch": Peer("PyTorch", "torch", "torch"),
    "fbgemm": Peer("FBGEMM", "fbgemm_gpu", "fbgemm-gpu-cpu"),
    "jax": Peer("JAX", "jax", "jax"),
    "scipy": Peer("SciPy", "scipy", "scipy"),
}


def missing(names: Iterable[str]) -> list[str]:
    """Those of the peers `names` that are not installed."""
    return [name for name in names if util.find_spec(PEERS[name].module) is None]


def load(names: Iterable[str]) -> dict[str, ModuleType]:
    """Ours and the peers `names`, ready to run on as many threads as all others."""
    modules = {}
    for name in (OURS, *names):
        modules[name] = import_module(f"{__name__}.{'ours' if name == OURS else name}")
        modules[name].start(THREADS)
    return modules


def versions(names: Iterable[str]) -> dict[str, str]:
    """The version of each of the peers `names`."""
    found = {}
    for name in names:
        try:
            found[name] = version(PEERS[name].distribution)
        except PackageNotFoundError:  # the same module from another distribution, such as tensorflow
            found[name] = str(getattr(import_module(PEERS[name].module), "__version__", "unknown"))
    return found
