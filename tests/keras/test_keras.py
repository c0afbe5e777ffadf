"""The Keras layers on each backend that is installed, in a process of its own: Keras chooses its backend once."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from optional import framework

framework("keras")
CHECKS = Path(__file__).with_name("keras_layers.py")


@pytest.mark.parametrize("backend", [name for name in ("tensorflow", "torch", "jax") if find_spec(name)])
def test_layers(backend: str, tmp_path: Path) -> None:
    environment = os.environ | {"KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run([sys.executable, str(CHECKS), str(tmp_path)], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    assert done.stdout.count("passed") == 7
