"""A studio for each test, over a folder with a few pages."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from studio_client import PAGE, Client, Tab, studio


@pytest.fixture(autouse=True)
def no_ceiling_stays() -> Iterator[None]:
    """The studio gives its process a ceiling of memory, which is not for the tests that follow."""
    if sys.platform == "win32":  # it has none
        yield
        return
    import resource

    before = resource.getrlimit(resource.RLIMIT_DATA)
    yield
    resource.setrlimit(resource.RLIMIT_DATA, before)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "pages").mkdir()
    (tmp_path / "pages" / "mean.page.json").write_text(PAGE)
    return tmp_path / "pages"


@pytest.fixture
def client(folder: Path) -> Iterator[Client]:
    with studio(folder) as found:
        yield found


@pytest.fixture
def tab(client: Client) -> Iterator[Tab]:
    """A tab at the page of the folder."""
    with client.tab(client.open(open="mean.page.json")) as found:
        yield found


@pytest.fixture
def empty(client: Client) -> Iterator[Tab]:
    """A tab at a new page."""
    with client.tab(client.open(new=True)) as found:
        yield found
