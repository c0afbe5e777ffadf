"""What is public: the names without an underscore, and no others."""

import pkgutil
import subprocess
import sys
from importlib import import_module
from types import ModuleType

import pytest

import rowgrad
from optional import framework
from rowgrad import raw_ops
from rowgrad._cli import app
from rowgrad._ops import OPERATORS

SUBMODULES = [
    "blocks",
    "errors",
    "features",
    "jax",
    "keras",
    "optim",
    "raw_ops",
    "sparse",
    "tables",
    "tensorflow",
    "torch",
]
PACKAGES = ["rowgrad", *(f"rowgrad.{name}" for name in SUBMODULES if name != "errors"), "rowgrad.torch.distributed"]
RAW_ONLY = ["IndexRank", "ChosenRank", *(name for name in OPERATORS if name.endswith("GradGrad"))]


def loaded(name: str) -> ModuleType:
    for needed in ("jax", "keras", "torch"):  # TensorFlow's needs none for checkpoints
        if name.startswith(f"rowgrad.{needed}"):
            framework(needed)
    return import_module(name)


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_benchmark_is_not_part_of_the_package() -> None:
    assert "bench" not in {module.name for module in pkgutil.iter_modules(rowgrad.__path__)}
    assert "bench" not in {command.name for command in app.registered_commands}


@pytest.mark.parametrize("name", SUBMODULES)
def test_submodules_need_no_import_of_their_own(name: str) -> None:
    loaded(f"rowgrad.{name}")
    assert run(f"import rowgrad; print(rowgrad.{name}.__name__)") == f"rowgrad.{name}"


def test_a_star_import_loads_no_framework() -> None:
    assert run("from rowgrad import *; import sys; print({'torch', 'jax'} & set(sys.modules))") == "set()"


@pytest.mark.parametrize(("name", "title"), [("torch", "PyTorch"), ("jax", "JAX")])
def test_a_front_end_whose_framework_is_missing_says_so(name: str, title: str) -> None:
    code = (
        f"import sys; sys.modules[{name!r}] = None\n"
        f"import rowgrad\nassert not hasattr(rowgrad, {name!r})\n"
        f"try: rowgrad.{name}\nexcept AttributeError as error: print(error)"
    )
    text = f"rowgrad.{name} needs {title}, which is not installed: pip install 'rowgrad[{name}]'"
    assert run(code) == text


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'rowgrad' has no attribute 'sparse_segment_men'"):
        rowgrad.sparse_segment_men  # type: ignore[attr-defined]  # noqa: B018


def test_the_top_level_lists_its_modules() -> None:
    found = {module.name for module in pkgutil.iter_modules(rowgrad.__path__) if not module.name.startswith("_")}
    assert sorted(found) == SUBMODULES
    assert found <= {*dir(rowgrad), "jax", "keras", "torch"}


@pytest.mark.parametrize("name", PACKAGES)
def test_dir_shows_what_is_public(name: str) -> None:
    package = loaded(name)
    assert package.__all__ == sorted(package.__all__, key=lambda name: (not name.isupper(), name))  # as ruff does
    assert not [name for name in package.__all__ if name.startswith("_")]
    assert [name for name in dir(package) if name not in ("jax", "keras", "tensorflow", "torch")] == sorted(
        package.__all__
    )
    assert all(hasattr(package, name) for name in package.__all__)


@pytest.mark.parametrize("name", PACKAGES)
def test_what_has_the_name_of_a_submodule_is_the_submodule(name: str) -> None:
    package = loaded(name)
    for module in pkgutil.iter_modules(getattr(package, "__path__", [])):
        if not module.name.startswith("_"):
            loaded(f"{name}.{module.name}")
            assert isinstance(getattr(package, module.name), ModuleType)


@pytest.mark.parametrize("name", RAW_ONLY)
def test_what_only_closes_the_algebra_is_in_raw_ops(name: str) -> None:
    assert hasattr(raw_ops, name)
    function = OPERATORS[name].function
    assert function is not None
    for package in ("rowgrad", "rowgrad.torch", "rowgrad.jax"):
        if package == "rowgrad" or package.rpartition(".")[2] in dir(rowgrad):
            assert not hasattr(import_module(package), function)
