"""The studio in a real browser: a server process over a folder, Chromium, and what users do there, by accessible names.

Fixtures: `studio`, one server for all tests; `desk`, a fresh browser at an empty page; `desks`, to have several. A desk
fails its test if the console told of an error or a request left this machine. Nothing here waits for time to pass.
"""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest

import rowgrad
from optional import framework, missing

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Locator, Page

    from rowgrad import blocks

NUMBERS = count()  # of files
ROOT = Path(__file__).parents[2]
WEB = ROOT / "studio" / "web"
CHROMIUM = "/usr/bin/chromium"
OPTIONS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
           "--disable-component-update", "--disable-sync"]  # fmt: skip
TOKEN = "a-token-for-tests"
SIZE = {"width": 1280, "height": 720}
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
PATIENCE = 30_000  # milliseconds; kernels may have to be compiled first
# How bright the paper is that an element stands on, from 0 to 1.
LUMINANCE = """(element) => {
    let at = element, colour = "rgba(0, 0, 0, 0)";
    for (; at && /, 0\\)$/.test(colour); at = at.parentElement) colour = getComputedStyle(at).backgroundColor;
    const [red, green, blue] = colour.match(/[\\d.]+/g).map(Number);
    return (0.2126 * red + 0.7152 * green + 0.0722 * blue) / 255;
}"""


class Server:
    """A studio of its own process over `folder`; it can be killed, and started again at the same port."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            self.port = found.getsockname()[1]
        self.origin = f"http://127.0.0.1:{self.port}"
        self.process: subprocess.Popen[str] | None = None

    def start(self) -> "Server":
        """Start it, and wait until it has printed its address."""
        places = [str(Path(found.__file__ or "").parents[1]) for found in (rowgrad, framework("rowgrad_studio"))]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "rowgrad_studio", "--no-browser", "--port", str(self.port), "--folder", self.folder],
            env={**os.environ, "ROWGRAD_STUDIO_TOKEN": TOKEN, "PYTHONPATH": os.pathsep.join(places)},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self.process.stdout is not None
        assert self.origin in self.process.stdout.readline()
        return self

    def end(self, how: signal.Signals = signal.SIGTERM) -> None:
        """End it, politely or not."""
        if self.process is not None:
            self.process.send_signal(how)
            self.process.wait(20)
            assert self.process.stdout is not None
            self.process.stdout.close()
            self.process = None

    def address(self, **query: str) -> str:
        """The address to open in a browser, with the token."""
        return f"{self.origin}/?{urlencode({'token': TOKEN, **query})}"


class Desk:
    """One tab, and what a user does there."""

    def __init__(self, page: "Page", server: Server) -> None:
        self.page = page
        self.server = server
        self.expected: list[str] = []  # console errors that belong to the test, as patterns
        self._errors: list[str] = []
        page.on("console", lambda message: self._errors.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: self._errors.append(str(error)))
        page.on("request", lambda request: self._check(request.url))
        page.on("websocket", lambda socket: self._check(socket.url))

    def _check(self, address: str) -> None:
        parts = urlsplit(address)
        if parts.scheme not in ("data", "blob") and parts.hostname not in LOOPBACK:
            self._errors.append(f"a request left the machine: {address}")

    def troubles(self) -> list[str]:
        """What the console and the network told that no test expected."""
        return [text for text in self._errors if not any(re.search(known, text) for known in self.expected)]

    # Where things are

    def open(self, **query: str) -> "Desk":
        """Go to the studio: an empty page, or ``open="a.page.json"``; and wait until it can be worked with."""
        self.page.goto(self.server.address(**query))
        return self.ready()

    def show(self, page: "blocks.Page") -> "Desk":
        """Open `page`, from a file of its own."""
        name = f"{page.name}-{next(NUMBERS)}.page.json"
        page.save(self.server.folder / name)
        return self.open(open=name)

    def skip_tour(self) -> "Desk":
        """Send away what greets a new user, and may cover blocks."""
        self.page.get_by_role("button", name="Skip the tour").click()
        return self

    def ready(self) -> "Desk":
        """Wait until the page is there and the line to the server stands."""
        expect(self.page.get_by_role("textbox", name="Name of the page")).not_to_have_value("")
        expect(self.tool("Run")).to_be_enabled()
        return self

    @property
    def document(self) -> str:
        """The id of the document, as in the address."""
        return parse_qs(urlsplit(self.page.url).query)["document"][0]

    def tool(self, name: str) -> "Locator":
        """A button of the toolbar."""
        return self.page.get_by_role("banner").get_by_role("button", name=name, exact=True)

    def block(self, id: str) -> "Locator":
        """A block on the canvas."""
        return self.page.get_by_role("group", name=id, exact=True)

    def input(self, block: str, pin: str) -> "Locator":
        """An input pin."""
        return self.page.get_by_role("button", name=f"{pin} input of {block}", exact=True)

    def output(self, block: str, pin: str = "output") -> "Locator":
        """An output pin."""
        return self.page.get_by_role("button", name=f"{pin} output of {block}", exact=True)

    def field(self, block: str, pin: str) -> "Locator":
        """The editor of the literal at a pin, or of an attribute."""
        return self.page.get_by_role("textbox", name=f"{pin} of {block}", exact=True)

    def result(self, block: str, pin: str = "output") -> "Locator":
        """What came out of a block."""
        return self.page.get_by_role("region", name=f"{pin} of {block}", exact=True)

    def dialog(self, name: str) -> "Locator":
        """A dialog that is open."""
        return self.page.get_by_role("dialog", name=name)

    @property
    def status(self) -> "Locator":
        """What is announced to everyone."""
        return self.page.get_by_role("status")

    @property
    def problems(self) -> "Locator":
        """The list of problems."""
        return self.page.get_by_role("region", name="Problems")

    @property
    def canvas(self) -> "Locator":
        """Where blocks stand."""
        return self.page.get_by_role("application")

    # What users do

    def type(self, block: str, pin: str, text: str) -> None:
        """Type a literal into a pin or an attribute."""
        self.field(block, pin).fill(text)
        self.field(block, pin).press("Enter")

    def add(self, operator: str) -> None:
        """Add a block by the search, with the mouse."""
        self.tool("Add block").click()
        self.dialog("Add a block").get_by_role("combobox", name="Search operators").fill(operator)
        self.dialog("Add a block").get_by_role("option", name=re.compile(f"^{operator} ")).click()

    def wire(self, source: "Locator", target: "Locator") -> None:
        """Drag a wire from one pin to another."""
        self.drag(source, *middle(target))

    def drag(self, what: "Locator", x: float, y: float) -> None:
        """Drag by the middle of `what` to a place in the window, as a hand does: not in one jump."""
        self.page.mouse.move(*middle(what))
        self.page.mouse.down()
        self.page.mouse.move(x - 8, y - 8, steps=6)
        self.page.mouse.move(x, y, steps=3)
        self.page.mouse.up()

    def act(self, block: str, item: str) -> None:
        """Choose from a block's menu."""
        self.page.get_by_role("button", name=f"Actions of {block}", exact=True).click()
        self.page.get_by_role("menuitem", name=re.compile(f"^{item}")).click()

    def run(self) -> None:
        """Run the page, and wait for its end, which is said again where the line tells of a run before."""
        before = self.status.text_content()
        self.tool("Run").click()
        said = "(before) => document.querySelector('[role=status]').textContent !== before"
        self.page.wait_for_function(said, arg=before)
        expect(self.status).to_contain_text("Run finished")

    def tab_to(self, name: str, most: int = 200) -> None:
        """Press Tab until what has that name has the focus."""
        for _ in range(most):
            self.page.keyboard.press("Tab")
            if self.focused() == name:
                return
        raise AssertionError(f"Tab never comes to {name!r}; it is at {self.focused()!r}")

    def focused(self) -> str:
        """The name of what has the focus."""
        found = self.page.evaluate(
            "() => { const at = document.activeElement; return at.getAttribute('aria-label') ?? at.textContent; }"
        )
        return str(found)

    # What there is to see

    def numbers(self, block: str, pin: str = "output") -> list[list[float]]:
        """A result, as it can be read on its block."""
        rows = self.result(block, pin).get_by_role("row").all()
        return [[float(text) for text in row.get_by_role("cell").all_inner_texts()] for row in rows]

    def file(self) -> dict[str, Any]:
        """The page as the server would write it."""
        address = f"{self.server.origin}/api/documents/{self.document}/export?as=page.json"
        found = self.page.request.get(address)
        assert found.ok, found.text()
        return dict(json.loads(found.text()))

    def blocks(self) -> dict[str, dict[str, Any]]:
        """The blocks of the page as the server has them, by id."""
        return {block["id"]: block for block in self.file()["blocks"]}


def middle(what: "Locator") -> tuple[float, float]:
    """The middle of a thing that is in view."""
    what.scroll_into_view_if_needed()
    box = what.bounding_box()
    assert box is not None
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def expect(what: Any) -> Any:
    """Playwright's `expect`: asserts that something comes true, and waits for it."""
    from playwright.sync_api import expect as expected

    expected.set_options(timeout=PATIENCE)
    return expected(what)


def drop(desk: Desk, name: str, content: bytes) -> None:
    """Drop a file on the window."""
    desk.page.evaluate(
        """([name, bytes]) => {
            const given = new DataTransfer();
            given.items.add(new File([Uint8Array.from(bytes)], name));
            const at = document.elementFromPoint(innerWidth / 2, innerHeight / 2);
            for (const kind of ["dragenter", "dragover", "drop"])
                at.dispatchEvent(new DragEvent(kind, { dataTransfer: given, bubbles: true, cancelable: true,
                                                       clientX: innerWidth / 2, clientY: innerHeight / 2 }));
        }""",
        [name, list(content)],
    )


def _is_built() -> bool:
    """The bundle is there, and no older than what it is made of."""
    made = WEB / "dist" / "widget.js"  # the last that is built
    sources = [path for place in ("src", "static") for path in (WEB / place).rglob("*") if path.is_file()]
    return made.exists() and made.stat().st_mtime >= max(path.stat().st_mtime for path in [*sources, WEB / "build.mjs"])


def _is_installed() -> bool:
    made, lock = WEB / "node_modules" / ".package-lock.json", WEB / "package-lock.json"
    return made.exists() and made.stat().st_mtime >= lock.stat().st_mtime


def _npm(*arguments: str) -> None:
    npm = shutil.which("npm")
    if npm is None:
        missing(f"there is no npm to run {' '.join(arguments)} in studio/web with")
    done = subprocess.run([npm, *arguments], cwd=WEB, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr


@contextmanager
def _alone() -> Iterator[None]:
    """One test process at a time."""
    import fcntl

    with (WEB / "package.json").open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@pytest.fixture(scope="session")
def packages() -> Path:
    """What `npm ci` brings."""
    with _alone():
        if not _is_installed():
            _npm("ci")
    return WEB / "node_modules"


@pytest.fixture(scope="session")
def bundle(request: pytest.FixtureRequest) -> Path:
    """The built page; it is built if it is missing or old."""
    if not _is_built():
        request.getfixturevalue("packages")
        with _alone():
            if not _is_built():
                _npm("run", "build")
    return WEB / "dist"


@pytest.fixture(scope="module")
def chromium() -> Iterator["Browser"]:
    """The browser; for one module, because as long as it runs no event loop can be run beside it."""
    playwright = framework("playwright.sync_api")
    if not Path(CHROMIUM).exists():
        missing(f"there is no Chromium at {CHROMIUM}; apt-get install chromium brings it")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=OPTIONS)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def studio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A studio for all tests; pages in its folder are named by those who need them."""
    framework("rowgrad_studio")
    server = Server(tmp_path_factory.mktemp("studio")).start()
    yield server
    server.end()


@pytest.fixture
def desks(chromium: "Browser", studio: Server, bundle: Path) -> Iterator[Callable[..., Desk]]:
    """Makes desks, each in a fresh browser context or, given one, in a tab of it."""
    made: list[Desk] = []
    contexts: list[BrowserContext] = []

    def make(server: Server = studio, *, beside: Desk | None = None, **options: Any) -> Desk:
        if beside is not None:
            context = beside.page.context
        else:
            context = chromium.new_context(**{"viewport": SIZE, "accept_downloads": True, **options})
            context.set_default_timeout(PATIENCE)
            contexts.append(context)
        made.append(Desk(context.new_page(), server))
        return made[-1]

    yield make
    troubles = [text for desk in made for text in desk.troubles()]
    for context in contexts:
        context.close()
    assert not troubles


@pytest.fixture
def desk(desks: Callable[..., Desk]) -> Desk:
    """A fresh browser at an empty page."""
    return desks().open()
