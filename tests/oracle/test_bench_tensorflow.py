"""TensorFlow as a contestant of the benchmark gives our answers."""

from typing import Any

import pytest

import peers


@pytest.mark.parametrize(("peer", "item"), peers.cases(lambda peer: peer == "tensorflow"))
def test_tensorflow_gives_our_answer(peer: str, item: Any) -> None:
    peers.check(peer, item)
