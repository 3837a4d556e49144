import http.client
import json
import signal
import socket
import subprocess
import sys
from contextlib import closing

import pytest
import torch
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

import dasp
from dasp.cli.main import main
from dasp.core.errors import OptionError
from dasp.models.toy import Toy
from dasp.page import serve
from dasp.page.server import Page, open_socket


def port_of(page):
    return int(page.url.split(":")[2].split("/")[0])


def answer(port, path="/", **headers):
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=20)) as line:
        line.request("GET", path, headers=headers)
        return line.getresponse()


def status(port, path="/", **headers):
    return answer(port, path, **headers).status


def line_to(page, **options):
    return connect(page.url.replace("http", "ws") + "ws", **options)


def test_a_page_is_up_until_it_is_closed(counting):
    with Page(counting()) as page:
        assert page.url.startswith("http://127.0.0.1:")
        assert status(port_of(page)) == 200
        for path in ("/", "/static/main.js", "/sound/0-0/0.wav"):
            assert status(port_of(page), path, Host="evil.example") == 403
        with line_to(page) as line, line_to(page) as other:
            assert json.loads(line.recv(timeout=20))["fresh"]
            line.send("x" * 100_000)  # too large a message ends that connection only
            with pytest.raises(ConnectionClosed) as closed:
                list(line)
            assert closed.value.rcvd.code == 1009
            assert other.recv(timeout=20)
    with pytest.raises(ConnectionError):
        status(port_of(page))


def test_a_port_in_use_is_refused_with_a_remedy_or_passed_over_and_a_wrong_one_refused(counting):
    with Page(counting()) as first, Page(counting()) as second:
        assert port_of(first) != port_of(second)
        with pytest.raises(OptionError, match="--port"):
            Page(counting(), port=port_of(first))
        assert status(port_of(first)) == 200
    for host, port in (("127.0.0.1", 70000), ("no such host", None)):
        with pytest.raises(OptionError):
            open_socket(host, port)


def test_on_another_address_a_token_is_required(counting):
    with Page(counting(), host="0.0.0.0", port=0) as page:
        port = port_of(page)
        token = page.url.split("token=")[1]
        for path in ("/", "/static/main.js", "/sound/0-0/0.wav", "/?token=no"):
            assert status(port, path) == 403
        first = answer(port, f"/?token={token}")
        cookie = first.headers["set-cookie"].split(";")[0]
        assert (first.status, cookie) == (200, f"dasp_{port}={token}")
        assert status(port, "/static/main.js", Cookie=cookie) == 200
        for path, origin in (("ws", None), (f"ws?token={token}", "http://evil.example")):
            with pytest.raises(InvalidStatus) as refused:
                connect(f"ws://127.0.0.1:{port}/{path}", origin=origin)
            assert refused.value.response.status_code == 403
        with connect(f"ws://127.0.0.1:{port}/ws", additional_headers={"Cookie": cookie}) as line:
            assert line.recv(timeout=20)


def test_a_browser_that_stops_reading_delays_nobody(counting):
    class Heavy(counting):
        def next(self):
            update = super().next()
            update.point["pad"] = "x" * 200_000
            return update

    with Page(Heavy()) as page:
        slow = socket.create_connection(("127.0.0.1", port_of(page)))
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        ask = f"GET /ws HTTP/1.1\r\nHost: 127.0.0.1:{port_of(page)}\r\nUpgrade: websocket\r\n"
        ask += "Connection: Upgrade\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
        slow.sendall(f"{ask}Sec-WebSocket-Version: 13\r\n\r\n".encode())
        with line_to(page, max_size=None) as quick:
            quick.send(json.dumps({"do": "speed", "value": 8}))
            seen = 0
            while seen < 12:
                seen += len(json.loads(quick.recv(timeout=20)).get("points", ()))
        slow.close()


def test_a_users_own_model_and_stream():
    with pytest.raises(OptionError, match=r"what dasp.adapt returned, not Toy"):
        serve(Toy(), [], browser=False, wait=False)
    stream = [{name: torch.randn(16, 6, 12) for name in ("audio", "video")} for _ in range(3)]
    tta = dasp.adapt(Toy(seed=1), "dasp")
    with serve(tta, stream, browser=False, wait=False) as page, line_to(page) as line:
        message = json.loads(line.recv(timeout=20))
        assert message["about"]["lanes"] == ["Dasp"]
        while "ended" not in message.get("state", {}).get("note", ""):
            message = json.loads(line.recv(timeout=20))
    assert tta.counters["batches"] == 3


def test_the_command_ends_by_ctrl_c_with_code_0_and_without_a_trace(tmp_path):
    log = tmp_path / "events.jsonl"
    log.touch()
    words = [sys.executable, "-m", "dasp", "monitor", str(log), "--no-browser", "--port", "0"]
    process = subprocess.Popen(words, stdout=-1, stderr=-1, text=True)
    url = process.stdout.readline().split()[4]
    with connect(url.replace("http", "ws") + "ws") as line:  # someone looks on
        assert line.recv(timeout=20)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=20)
    assert (process.returncode, out, err) == (0, "", "")


def test_commands_say_what_is_wrong_in_one_line(capsys, tmp_path):
    assert main(["monitor", str(tmp_path / "none.jsonl"), "--no-browser"]) == 2
    assert "no event log" in capsys.readouterr().err
    (tmp_path / "log").touch()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["monitor", str(tmp_path / "log"), "--no-browser", "--port", str(port)]) == 2
    assert f"port {port} is in use" in capsys.readouterr().err


def test_without_the_extra_the_library_loads_and_the_page_says_what_to_install():
    code = (
        "import sys; sys.modules['fastapi'] = sys.modules['uvicorn'] = None\n"
        "import dasp, dasp.cli\n"
        "try: dasp.page.show(None)\n"
        "except dasp.DaspError as error: print(error, 'starlette' in sys.modules)"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout
    assert "pip install 'dasp-tta[demo]'" in said
    assert said.endswith("False\n")
