"""Who is let in: the token, the Host, the Origin; what a browser is told; limits of size; paths that lead out."""

import base64
import os

import pytest
from studio_client import PAGE, TOKEN, Client, studio
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from rowgrad_studio import app, security


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("studio") / "pages"
    (place / ".hidden").mkdir(parents=True)
    (place.parent / "secret.page.json").write_text(PAGE)
    (place.parent / "secret.csv").write_text("1\n2\n")
    (place / ".hidden" / "x.page.json").write_text(PAGE)
    os.symlink(place.parent / "secret.page.json", place / "link.page.json")
    return place


@pytest.fixture(scope="module")
def client(folder):
    """One studio for all: nothing here changes it."""
    with studio(folder) as found:
        yield found


def test_the_token_becomes_a_cookie_and_leaves_the_address(client):
    answer = client.request("GET", f"/?token={TOKEN}&open=a%20b.page.json", Cookie=None)
    assert (answer.status, answer.headers["Location"]) == (303, "/?open=a+b.page.json")
    cookie = answer.headers["Set-Cookie"]
    assert cookie.startswith(f"rowgrad-studio-{client.port}={TOKEN};")
    assert "HttpOnly" in cookie and "SameSite=strict" in cookie and "Path=/" in cookie


@pytest.mark.parametrize(
    "path", ["/", "/static/app.js", "/api/catalogue", "/api/files", "/api/documents/x/export?as=py"]
)
@pytest.mark.parametrize("cookie", [None, "", "rowgrad-studio=x", "wrong", "other"])
def test_nothing_without_the_cookie(client, path, cookie):
    given = {"wrong": f"rowgrad-studio-{client.port}=wrong", "other": f"rowgrad-studio-1={TOKEN}"}.get(cookie, cookie)
    answer = client.request("GET", path, Cookie=given)
    assert answer.status == 403
    assert TOKEN.encode() not in answer.body


def test_a_wrong_token(client):
    answer = client.request("GET", "/?token=wrong", Cookie=None)
    assert answer.status == 403 and "Set-Cookie" not in answer.headers
    assert client.request("GET", "/?token=", Cookie=None).status == 403
    assert client.request("GET", "/?token=%ff%00", Cookie=None).status == 403
    assert client.request("GET", "/api/files?token=" + TOKEN, Cookie=None).status == 403


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:{port}",
        "127.0.0.1",
        "127.0.0.1:1",
        "localhost.evil:{port}",
        "127.0.0.1:{port}@evil",
        "",
        "[::]:{port}",
        "0.0.0.0:{port}",
    ],
)
def test_hosts_that_are_not_this_machine(client, host):
    assert client.request("GET", "/", Host=host.format(port=client.port)).status == 403
    assert client.request("GET", f"/?token={TOKEN}", Host=host.format(port=client.port)).status == 403


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost", "LOCALHOST", "[::1]"])
def test_hosts_that_are(client, name):
    assert client.request("GET", "/api/files", Host=f"{name}:{client.port}").status == 200


@pytest.mark.parametrize(
    "origin",
    [
        None,
        "null",
        "http://evil.example",
        "https://127.0.0.1:{port}",
        "http://127.0.0.1:1",
        "http://localhost:{port}",
        "http://127.0.0.1",
    ],
)
def test_changes_from_other_origins(client, origin):
    given = origin and origin.format(port=client.port)
    assert client.request("POST", "/api/documents", {"new": True}, Origin=given).status == 403
    assert client.request("DELETE", "/api/drafts/0123456789abcdef", Origin=given).status == 403
    document = client.open(new=True)
    with pytest.raises(InvalidStatus) as caught, connect(f"ws://{client.host}/ws?document={document}", origin=given,
                 additional_headers={"Cookie": client.cookie}):  # fmt: skip
        pass
    assert caught.value.response.status_code == 403


def test_reading_for_another_page_is_refused_too(client):
    assert client.request("GET", "/api/files", Origin="http://evil.example").status == 403


def test_a_socket_without_the_cookie(client):
    document = client.open(new=True)
    with pytest.raises(InvalidStatus), connect(f"ws://{client.host}/ws?document={document}", origin=client.origin):
        pass


@pytest.mark.parametrize("path", ["/", "/api/catalogue", "/static/none.js", "/nothing", f"/?token={TOKEN}"])
def test_headers_that_browsers_keep_to(client, path):
    headers = client.get(path).headers
    policy = headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';")
    assert f"connect-src 'self' ws://{client.host};" in policy and "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy and "base-uri 'none'" in policy and "form-action 'none'" in policy
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Referrer-Policy"] == "no-referrer"
    assert headers["Cache-Control"] == "no-store"


@pytest.mark.parametrize(
    "name", ["../pyproject.toml", "..%2fapp.py", "%2e%2e/app.py", ".hidden", "a/b", "index.html%00.js", ""]
)
def test_static_files_are_those_of_the_bundle(client, name):
    assert client.get(f"/static/{name}").status == 404


def test_the_page_is_served_or_it_is_said_how_to_build_it(client, tmp_path, monkeypatch):
    monkeypatch.setattr(app, "BUNDLES", (tmp_path,))
    answer = client.get("/")
    assert answer.status == 503 and b"make studio" in answer.body
    (tmp_path / "index.html").write_text("<!doctype html>")
    (tmp_path / "app.js").write_text("1")
    assert client.get("/").headers["Content-Type"].startswith("text/html")
    assert client.get("/static/app.js").headers["Content-Type"].startswith("text/javascript")
    assert client.get("/favicon.ico").status == 204


def test_a_request_that_is_too_large(client, monkeypatch):
    monkeypatch.setattr(app, "MOST_BODY", 1000)
    answer = client.post({"data": "A" * 2000, "name": "x.page.json"})
    assert (answer.status, answer.json["error"]["code"]) == (413, "too-large")
    assert security.MOST_BODY > 64 * 2**20


@pytest.mark.parametrize(
    "path",
    [
        "../secret.page.json",
        "/etc/passwd",
        "a/../../secret.page.json",
        "link.page.json",
        ".hidden/x.page.json",
        "..",
        "",
        "\0",
        "sub/../../secret.page.json",
    ],
)
def test_paths_that_lead_out(client, folder, path):
    answer = client.post({"open": path})
    assert answer.status in (400, 403, 404), answer.body
    assert answer.json["error"]["code"] in ("outside", "no-such-file", "bad-file")
    with client.tab(client.open(new=True)) as tab:
        tab.do("add", op="Neg", at=[0, 0])
        assert tab.refused("save", path=path or "../x", overwrite=True)["code"] == "outside"
    assert (folder.parent / "secret.page.json").read_text() == PAGE


def test_a_page_reads_no_files_outside(client, folder):
    with client.tab(client.open(new=True)) as tab:
        for path in ("../secret.csv", str(folder.parent / "secret.csv")):
            error = tab.refused("add", op="File", at=[0, 0], attrs={"path": path})
            assert "outside" in error["message"] or "no-such" in error["code"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"nonsense",
        b"[]",
        b"{}",
        b'{"new": false}',
        b'{"open": 3}',
        b'{"open": "a", "new": true}',
        b'{"nothing": "x"}',
        b'{"draft": "nobody"}',
        b'{"example": "../tour"}',
        b'{"data": "%%%", "name": "a.svg"}',
        b'{"data": "AAAA", "name": "a.exe"}',
        b'{"data": "AAAA", "name": "a.png"}',
        b'{"name": "x"}',
        b'{"data": "AAAA"}',
        b"[" * 100_000,
        b'{"open": "missing.page.json"}',
    ],
)
def test_requests_that_are_none(client, body):
    answer = client.request("POST", "/api/documents", body)
    assert answer.status in (400, 404), answer.body
    error = answer.json["error"]
    assert error["message"] and error["code"] != "internal"


def test_unknown_documents(client):
    for path in ("export?as=py", "output?block=a&pin=b&as=npy", "rows?block=a&pin=b&row=0"):
        for id in ("nobody", "0123456789abcdef", "..%2f..%2fx"):
            assert client.get(f"/api/documents/{id}/{path}").status == 404
    with connect(f"ws://{client.host}/ws?document=nobody", origin=client.origin,
                 additional_headers={"Cookie": client.cookie}) as line:  # fmt: skip
        with pytest.raises(Exception) as caught:
            line.recv(timeout=10)
        assert caught.value.rcvd.code == 4404


def test_a_page_full_of_nonsense_is_refused_in_words(client):
    data = base64.b64encode(b'{"rowgrad_page": 1, "blocks": [{"id": "a", "op": "Nothing"}]}').decode()
    answer = client.post({"data": data, "name": "x.page.json"})
    assert (answer.status, answer.json["error"]["code"]) == (400, "unknown-operator")


def test_two_studios_do_not_share_a_cookie(client, tmp_path):
    other = Client(client.port + 1)
    assert other.cookie != client.cookie
