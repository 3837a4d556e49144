import re

import pytest
from fastapi.testclient import TestClient
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import HTTPConnection

from dasp.page.runner import Runner
from dasp.page.server import STATIC, build_app, refusal

HOST = "http://127.0.0.1:8710"
SOCKET = "ws://127.0.0.1:8710/ws"
TOKEN = "Zm9vYmFyLWJhei1xdXV4LTAxMjM0NTY3"


def refused(token, kind="http", query="", method="GET", **headers):
    raw = [(k.encode(), v.encode("latin-1", "replace")) for k, v in headers.items()]
    scope = {"type": kind, "method": method, "headers": raw, "query_string": query.encode()}
    return refusal(HTTPConnection(scope), token, "dasp_token")


def test_only_loopback_names_reach_a_page_without_a_token():
    for host in ("127.0.0.1:8710", "localhost:1", "[::1]:8710", "LOCALHOST"):
        assert refused(None, host=host) is None
    foreign = ("evil.example:8710", "127.0.0.1.evil.example", "192.168.1.2", "0.0.0.0", "")
    for host in (*foreign, "localhost.evil", "["):
        assert "this computer only" in refused(None, host=host)


@pytest.mark.parametrize("token", [None, "t"])
def test_a_websocket_or_a_sample_of_another_site_is_refused(token):
    own = {"host": "127.0.0.1:8710", "cookie": "dasp_token=t"}
    assert refused(token, "websocket", origin=HOST, **own) is None
    assert refused(token, "websocket", **own) is None  # not a browser
    for origin in ("http://evil.example", "http://127.0.0.1:9999", "null", "http://["):
        assert "page itself" in refused(token, "websocket", origin=origin, **own)
        assert "page itself" in refused(token, "http", method="POST", origin=origin, **own)


@given(given=st.text(st.characters(codec="ascii", exclude_characters="&#+%;\x00"), max_size=40))
def test_only_the_token_itself_opens(given):
    assert "has a token" in refused(TOKEN, host="10.0.0.1", query=f"token={given}")
    assert refused(TOKEN, host="10.0.0.1", query=f"token={TOKEN}") is None
    assert refused(TOKEN, host="x", cookie=f"dasp_token={TOKEN}") is None
    assert refused(TOKEN, host="x", cookie=f"dasp_token={TOKEN}x") is not None


@pytest.fixture
def client(counting):
    runner = Runner(counting(), playing=False)
    app = build_app(runner)
    app.state.feed = runner.feed
    with TestClient(app, base_url=HOST) as client:
        yield client
        runner.stop()


def until(socket, true=lambda message: message.get("points")):
    """Read messages until one is what was waited for: by default, until points come."""
    messages = (socket.receive_json() for _ in range(500))
    return next(message for message in messages if true(message))


def test_the_page_and_its_files_have_strict_headers_and_nothing_else_is_there(client):
    page = client.get("/")
    assert page.headers["content-type"].startswith("text/html")
    names = [path.name for path in STATIC.iterdir() if path.suffix != ".html"]
    assert {"main.js", "page.css"} <= set(names)
    for answer in [page, *(client.get(f"/static/{name}") for name in names)]:
        assert answer.status_code == 200
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"
    for path in ("none.js", "..%2fapp.py", "../app.py", "../docs", "../openapi.json"):
        assert client.get(f"/static/{path}").status_code == 404
    for path in STATIC.iterdir():  # none of them points elsewhere
        links = re.findall(r"(?:https?:)?//[\w.]+\.\w+", path.read_text())
        assert set(links) <= {"http://www.w3.org"}, path.name


def test_news_begin_with_everything_and_two_tabs_see_and_control_the_same(client):
    with client.websocket_connect(SOCKET) as one, client.websocket_connect(SOCKET) as two:
        first = one.receive_json()
        assert first["fresh"]
        assert first["about"]["title"] == "counting"
        assert first["state"]["playing"] is False
        one.send_json({"do": "step"})
        news = until(two)
        assert news["points"] == [{"n": 0}]
        assert client.get(f"/sound/{news['samples']['key']}/0.wav").content == b"RIFF"
        assert client.get(f"/sound/{news['samples']['key']}/1.wav").status_code == 404
        assert client.get("/sound/9-9/0.wav").status_code == 404
        two.send_json({"do": "corrupt", "severity": 2})
        until(one, lambda m: m.get("state", {}).get("commands") == 1)
        two.send_json({"do": "reset"})
        assert until(one, lambda m: m.get("fresh") and not m["points"])


@pytest.mark.parametrize(
    "text",
    ["", "pause", "[]", "5", "null", '{"do":', "{}", '{"do": "fly"}', "[" * 5000, '{"do": {}}',
     '{"do": "speed", "value": 1e400}', '{"do": "corrupt", "severity": 9}', b"\xff\x00"],
)  # fmt: skip
def test_a_wrong_message_gets_an_answer_and_the_connection_stays(client, text):
    with client.websocket_connect(SOCKET) as socket:
        socket.send_bytes(text) if isinstance(text, bytes) else socket.send_text(text)
        assert until(socket, lambda m: m["kind"] == "error")["message"]
        socket.send_json({"do": "step"})
        until(socket)


def test_a_sample_is_answered_and_a_wrong_one_refused_in_words(client, monkeypatch):
    for body in ("", "[]", '{"files": 3}', '{"files": {"a": 5}}', '{"files": {"a.npz": "eA=="}}'):
        answer = client.post("/sample", content=body)
        assert answer.status_code == 400
        assert answer.text
    feed = client.app.state.feed
    monkeypatch.setattr(feed, "predict", lambda files: {"sizes": [len(b) for b in files.values()]})
    answer = client.post("/sample", json={"files": {"a.npz": "aGVsbG8="}})
    assert answer.json() == {"sizes": [5]}
    monkeypatch.setattr("dasp.page.server.LARGEST_SAMPLE", 10)
    assert client.post("/sample", content="x" * 11).status_code == 413


def test_the_stream_can_be_saved(client):
    with client.websocket_connect(SOCKET) as socket:
        socket.send_json({"do": "step"})
        until(socket)
    answer = client.get("/stream.csv")
    assert answer.headers["content-type"].startswith("text/csv")
    assert answer.text == "n\n0\n"
