import re

import pytest
from fastapi.testclient import TestClient
from starlette.websockets import WebSocketDisconnect

from dasp.page.access import Access
from dasp.page.app import PAGES, STATIC, build_app
from dasp.page.board import Board
from dasp.page.runner import Runner

HOST = "http://127.0.0.1:8710"
SOCKET = "ws://127.0.0.1:8710/ws"


@pytest.fixture
def opened(counting):
    clients = []

    def open_page(access=Access(), feed=None, playing=False):  # noqa: B008
        runner = Runner(feed or counting(), Board(), playing)
        client = TestClient(build_app(runner, access), base_url=HOST)
        client.__enter__()
        clients.append((client, runner))
        runner.start()
        return client

    yield open_page
    for client, runner in clients:
        runner.stop()
        client.__exit__(None, None, None)


def until(socket, true):
    """Read messages until one is what was waited for."""
    for _ in range(500):
        message = socket.receive_json()
        if true(message):
            return message
    raise AssertionError("it never came")


def has_points(count):
    return lambda message: len(message.get("points", ())) >= count


def test_the_page_and_its_files_come_with_strict_headers(opened):
    client = opened()
    page = client.get("/")
    assert page.headers["content-type"].startswith("text/html")
    names = [path.name for path in STATIC.iterdir() if path.suffix != ".html"]
    assert {"main.js", "page.css"} <= set(names)
    for answer in [page, *(client.get(f"/static/{name}") for name in names)]:
        assert answer.status_code == 200
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"


def test_nothing_on_the_page_points_elsewhere():
    for path in STATIC.iterdir():
        links = re.findall(r"(?:https?:)?//[\w.]+\.\w+", path.read_text())
        assert set(links) <= {"http://www.w3.org"}, path.name


@pytest.mark.parametrize(
    "path",
    ["/static/none.js", "/static/..%2fapp.py", "/static/../app.py", "/docs", "/openapi.json"],
)
def test_nothing_else_is_there(opened, path):
    assert opened().get(path).status_code == 404


def test_news_begin_with_everything_and_wishes_are_obeyed(opened):
    client = opened()
    with client.websocket_connect(SOCKET) as socket:
        first = socket.receive_json()
        assert first["fresh"]
        assert first["about"]["title"] == "counting"
        assert first["state"]["playing"] is False
        socket.send_json({"do": "step"})
        news = until(socket, has_points(1))
        assert news["points"] == [{"n": 0}]
        assert client.get(f"/sound/{news['samples']['key']}/0.wav").content == b"RIFF"
        assert client.get(f"/sound/{news['samples']['key']}/1.wav").status_code == 404
        assert client.get("/sound/9-9/0.wav").status_code == 404


def test_two_tabs_see_and_control_the_same(opened):
    client = opened()
    with client.websocket_connect(SOCKET) as one, client.websocket_connect(SOCKET) as two:
        one.send_json({"do": "step"})
        assert until(two, has_points(1))["points"] == [{"n": 0}]
        two.send_json({"do": "corrupt", "severity": 2})
        until(one, lambda m: m.get("state", {}).get("wishes") == 1)
        two.send_json({"do": "reset"})
        assert until(one, lambda m: m.get("fresh") and not m["points"])


def test_who_comes_back_gets_the_history(opened):
    client = opened(playing=True)
    with client.websocket_connect(SOCKET) as socket:
        last = until(socket, has_points(1))["points"][-1]["n"]
    with client.websocket_connect(SOCKET) as socket:
        first = socket.receive_json()
        assert first["fresh"]
        assert [p["n"] for p in first["points"]][: last + 1] == list(range(last + 1))


@pytest.mark.parametrize(
    "text",
    ["", "pause", "[]", "5", "null", '{"do":', "{}", '{"do": "fly"}', "[" * 5000, '{"do": {}}',
     '{"do": "speed", "value": 1e400}', '{"do": "corrupt", "severity": 9}'],
)  # fmt: skip
def test_a_wrong_message_gets_an_answer_and_the_line_stays(opened, text):
    with opened().websocket_connect(SOCKET) as socket:
        socket.send_text(text)
        assert until(socket, lambda m: m["kind"] == "error")["message"]
        socket.send_json({"do": "step"})
        until(socket, has_points(1))


def test_bytes_are_a_wrong_message_too(opened):
    with opened().websocket_connect(SOCKET) as socket:
        socket.send_bytes(b"\xff\x00")
        assert "JSON" in until(socket, lambda m: m["kind"] == "error")["message"]


def test_so_many_pages_and_no_more(opened):
    client = opened()
    sockets = [client.websocket_connect(SOCKET) for _ in range(PAGES)]
    for socket in sockets:
        socket.__enter__().receive_json()
    with client.websocket_connect(SOCKET) as late, pytest.raises(WebSocketDisconnect) as closed:
        late.receive_json()
    assert closed.value.code == 1013
    for socket in sockets:
        socket.__exit__(None, None, None)


def test_a_foreign_name_or_origin_gets_nothing(opened):
    client = opened()
    for path in ("/", "/static/main.js", "/sound/0-0/0.wav"):
        assert client.get(path, headers={"host": "evil.example"}).status_code == 403
    for headers in ({"host": "evil.example"}, {"origin": "http://evil.example"}):
        with (
            pytest.raises(WebSocketDisconnect),
            client.websocket_connect(SOCKET, headers=headers),
        ):
            pass


def test_with_a_token_nothing_opens_without_it(opened):
    client = opened(Access("secret", "dasp_8710"))
    for path in ("/", "/?token=secre", "/static/main.js", "/sound/0-0/0.wav"):
        assert client.get(path).status_code == 403
    with pytest.raises(WebSocketDisconnect), client.websocket_connect(SOCKET):
        pass
    assert client.get("/?token=secret").status_code == 200
    cookie = client.cookies["dasp_8710"]
    assert cookie == "secret"
    assert client.get("/static/main.js").status_code == 200  # by the cookie
    with client.websocket_connect(SOCKET, headers={"cookie": f"dasp_8710={cookie}"}) as socket:
        assert socket.receive_json()["fresh"]
