"""Who may not: other pages in the same browser, browsers without the token, ways out of the folder."""

import http.server
import threading
from collections.abc import Callable, Iterator

import pytest

from studio.browser import TOKEN, Desk, Server, expect

ASK = "([address, options]) => fetch(address, options).then((answer) => answer.status, () => 'refused')"
OPEN = (
    "(body) => fetch('/api/documents', { method: 'POST', body: JSON.stringify(body) }).then((answer) => answer.json())"
)
CONNECT = """(address) => new Promise((done) => {
    const socket = new WebSocket(address);
    socket.onmessage = () => done("let in");
    socket.onclose = (event) => done(event.code);
})"""


class _Elsewhere(http.server.BaseHTTPRequestHandler):
    """A page of somebody else, on this machine too, which is as near as a foreign page can come."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><link rel=icon href=data:,><title>elsewhere</title>")

    def log_message(self, *given: object) -> None:
        pass


@pytest.fixture
def elsewhere() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Elsewhere) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


def test_pages_from_elsewhere_are_refused(desk: Desk, desks: Callable[..., Desk], elsewhere: str) -> None:
    """They run in the same browser, with the cookie; cookies do not even know ports."""
    other = desks(beside=desk)
    other.expected = ["CORS", "Failed to load", "WebSocket"]
    other.page.goto(elsewhere)
    origin = desk.server.origin
    posted = {"method": "POST", "body": '{"new": true}', "credentials": "include", "mode": "no-cors"}
    before = desk.page.request.get(f"{origin}/api/files").json()
    assert other.page.evaluate(ASK, [f"{origin}/api/files", {"credentials": "include"}]) == "refused"
    with other.page.expect_response(f"{origin}/api/documents") as answer:
        other.page.evaluate(ASK, [f"{origin}/api/documents", posted])
    assert answer.value.status == 403
    assert other.page.evaluate(CONNECT, f"{origin.replace('http', 'ws')}/ws?document={desk.document}") == 1006
    assert desk.page.request.get(f"{origin}/api/files").json() == before


def test_without_the_token_there_is_nothing(studio: Server, desks: Callable[..., Desk]) -> None:
    desk = desks()
    desk.expected = ["403", "WebSocket"]
    for address in (studio.origin, f"{studio.origin}/?token=guess", f"{studio.origin}/?open=a.page.json"):
        answer = desk.page.goto(address)
        assert answer is not None and answer.status == 403
        assert "Open the address that the studio printed" in desk.page.inner_text("body")
        assert TOKEN not in answer.text()
    for path in ("/api/catalogue", "/api/files", "/static/app.js"):
        assert desk.page.evaluate(ASK, [path, {}]) == 403
    assert desk.page.evaluate(CONNECT, f"{studio.origin.replace('http', 'ws')}/ws?document=0123456789abcdef") == 1006


def test_the_token_stays_in_no_address(desk: Desk) -> None:
    assert TOKEN not in desk.page.url
    assert TOKEN not in desk.page.evaluate("() => document.cookie + JSON.stringify(localStorage)")


def test_a_name_that_somebody_else_gave_this_machine_is_refused(desk: Desk) -> None:
    """Whoever owns a name can make it lead here; what was asked for is in the Host."""
    answer = desk.page.request.get(desk.server.address(), headers={"Host": f"evil.example:{desk.server.port}"})
    assert answer.status == 403


def test_ways_out_of_the_folder_are_refused(desk: Desk, tmp_path_factory: pytest.TempPathFactory) -> None:
    outside = tmp_path_factory.mktemp("outside") / "page.page.json"
    outside.write_text('{"rowgrad_page": 1, "name": "secret", "blocks": []}')
    (desk.server.folder / "link.page.json").unlink(missing_ok=True)
    (desk.server.folder / "link.page.json").symlink_to(outside)
    desk.expected = ["400", "403"]
    for name in (str(outside), f"../{outside.parent.name}/{outside.name}", "link.page.json", ".rowgrad/open.json"):
        answer = desk.page.evaluate(OPEN, {"open": name})
        assert answer["error"]["code"] == "outside", name
    (desk.server.folder / "link.page.json").unlink()


def test_saving_outside_of_the_folder_is_refused(desk: Desk) -> None:
    desk.add("Const")
    desk.tool("Save as").click()
    dialog = desk.dialog("Save as")
    dialog.get_by_role("textbox").fill("../escaped.page.json")
    dialog.get_by_role("button", name="Save", exact=True).click()
    expect(desk.page.get_by_text("is not inside the folder").first).to_be_visible()
    assert not (desk.server.folder.parent / "escaped.page.json").exists()
