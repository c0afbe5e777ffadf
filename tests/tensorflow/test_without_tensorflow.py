"""What `rowgrad.tensorflow` says and has where TensorFlow is not installed."""

import subprocess
import sys

import pytest


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("name", ["sparse_segment_mean", "patch", "embedding_lookup_sparse"])
def test_functions_say_what_is_missing(name: str) -> None:
    code = (
        "import sys; sys.modules['tensorflow'] = None\nimport rowgrad\nrowgrad.tensorflow.load_checkpoint\n"
        f"try: rowgrad.tensorflow.{name}\nexcept AttributeError as error: print(error)"
    )
    text = f"rowgrad.tensorflow.{name} needs TensorFlow, which is not installed: pip install 'rowgrad[tensorflow]'"
    assert run(code) == text


def test_unknown_names() -> None:
    code = "import rowgrad\ntry: rowgrad.tensorflow.segment_men\nexcept AttributeError as error: print(error)"
    assert run(code) == "module 'rowgrad.tensorflow' has no attribute 'segment_men'"


def test_nothing_heavy_is_loaded() -> None:
    code = "import sys, rowgrad.tensorflow; print({'tensorflow', 'keras', 'numba', 'h5py', 'torch'} & set(sys.modules))"
    assert run(code) == "set()"
