"""TensorFlow as a contestant of the benchmark gives our answers."""

from typing import Any

import pytest

import peers


@pytest.mark.parametrize("case", peers.cases("tensorflow"))
def test_tensorflow_gives_our_answer(case: Any) -> None:
    peers.check(case, "tensorflow")
