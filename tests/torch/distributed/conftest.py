"""The ranks that all tests of this folder share."""

from collections.abc import Iterator

import pytest
from ranks import Ranks


@pytest.fixture(scope="session")
def ranks() -> Iterator[Ranks]:
    """Processes that run functions as the ranks of a group."""
    found = Ranks()
    yield found
    found.end()
