"""The application on the net: what it takes, what it refuses and how, and what it tells."""

import http.client
import io
import json
import socket
import threading

import numpy as np
import pytest
import torch
from prometheus_client.parser import text_string_to_metric_families

from dasp.client import Client, ServerError
from dasp.core.errors import InputError, OptionError, StateError
from dasp.service.wire import JSON, NPZ, SAFETENSORS, pack


def ask(client, method, path, body=b"", **headers):
    """Send any bytes; return the status and the answer as parsed JSON."""
    line = http.client.HTTPConnection(client.url.removeprefix("http://"), timeout=120)
    token = {"Authorization": "Bearer a token for the tests"}
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    line.request(method, path, body, token | names)
    answer = line.getresponse()
    found = answer.status, json.loads(answer.read())
    line.close()
    return found


def npz(batch):
    file = io.BytesIO()
    np.savez_compressed(file, **{name: value.numpy() for name, value in batch.items()})
    return file.getvalue()


def as_json(batch):
    return json.dumps({"inputs": {n: v.tolist() for n, v in batch.items()}}).encode()


def test_a_client_gets_what_the_adaptation_itself_would_say(online, make, stream):
    client, alone = online(window=0), make()
    for batch in stream(4):
        ours, theirs = client(batch), alone(batch)
        assert torch.equal(ours.logits, theirs.logits)
        assert (ours.diagnosis, ours.updated, ours.loss, ours.skipped) == (
            theirs.diagnosis, theirs.updated, theirs.loss, theirs.skipped,
        )  # fmt: skip
    part = {"audio": batch["audio"].numpy()}
    said = client(part, learn=False)
    with alone.frozen():
        assert torch.equal(said.logits, alone({"audio": batch["audio"]}).logits)
    info = client.info()
    assert (info["method"], info["modalities"], info["classes"]) == ("dasp", ["audio", "video"], 3)


def test_the_three_kinds_of_bodies_say_the_same(online, stream):
    (batch,) = stream(1)
    client = online(window=0)
    said = [
        ask(client, "POST", "/predict?learn=false", body, Content_Type=kind)
        for body, kind in ((pack(batch), SAFETENSORS), (npz(batch), NPZ), (as_json(batch), JSON))
    ]
    assert [status for status, _ in said] == [200] * 3
    assert said[0][1]["logits"] == said[1][1]["logits"] == said[2][1]["logits"]


BAD = [
    (b"rubbish", SAFETENSORS, 422, "not a safetensors file"),
    (b"", SAFETENSORS, 422, "not a safetensors file"),
    (b"\xff" * 64, SAFETENSORS, 422, "not a safetensors file"),
    (b"PK rubbish", NPZ, 422, "not an npz file"),
    (b"{", JSON, 422, "not a batch in JSON"),
    (b"[" * 60_000, JSON, 422, "not a batch in JSON"),
    (b"[]", JSON, 422, '{"inputs"'),
    (b'{"inputs": {"audio": [[1], [2, 3]]}}', JSON, 422, "not a batch in JSON"),
    (b'{"inputs": {"audio": "loud"}}', JSON, 422, "not a batch in JSON"),
    (b'{"inputs": {}}', JSON, 422, "lack audio, video"),
    (b'{"inputs": {"audio": [[[1.0]]]}}', JSON, 422, "this model takes (B, steps, 12)"),
    (b'{"inputs": {"radar": [[1.0]]}}', JSON, 422, "unknown modality 'radar'"),
    (b"audio=1", "text/plain", 422, "content type"),
    (b"x" * 70_000, SAFETENSORS, 413, "larger than 65,536 bytes"),
]


def test_bad_bodies_are_refused_with_the_cause_and_change_nothing(online, stream, tmp_path):
    client = online(window=0, web={"max_bytes": 65_536}, samples=64)
    (batch,) = stream(1)
    client(batch)
    client.save(tmp_path / "before")
    for body, kind, status, words in BAD:
        found, answer = ask(client, "POST", "/predict", body, Content_Type=kind)
        assert (found, words in answer["error"]) == (status, True), (body[:40], found, answer)
    bomb = npz({"audio": torch.zeros(1, 6, 12, 1000)})
    found, answer = ask(client, "POST", "/predict", bomb, Content_Type=NPZ)
    assert (found, "at most 65,536" in answer["error"]) == (422, True)
    for call, status in (
        (("GET", "/nowhere"), 404),
        (("GET", "/predict"), 405),
        (("POST", "/predict?learn=perhaps"), 422),
        (("POST", "/state/rollback?to=x"), 422),
        (("POST", "/state/rollback?to=99"), 409),
        (("PUT", "/state", b"rubbish"), 409),
    ):
        found, answer = ask(client, *call)
        assert (found, bool(answer["error"])) == (status, True), (call, answer)
    found, answer = ask(client, "POST", "/predict", pack(batch), X_Request_Id="x" * 200)
    assert found == 422
    client.save(tmp_path / "after")
    tensors = ((tmp_path / name).read_bytes()[-400:] for name in ("before", "after"))
    assert next(tensors) == next(tensors)


def test_nothing_but_health_and_the_description_is_told_without_the_token(online, stream):
    client = online()
    for path in ("/predict", "/info", "/metrics", "/state", "/state/history", "/nowhere"):
        for token in ("", "Bearer", "Bearer wrong", "Basic xyz", "Bearer ü"):
            line = http.client.HTTPConnection(client.url.removeprefix("http://"), timeout=120)
            line.request("GET", path, headers={"Authorization": token.encode("latin-1")})
            answer = line.getresponse()
            assert (answer.status, b"Bearer TOKEN" in answer.read()) == (401, True)
            line.close()
    line = http.client.HTTPConnection(client.url.removeprefix("http://"), timeout=120)
    for path in ("/healthz", "/docs", "/openapi.json"):
        line.request("GET", path)
        answer = line.getresponse()
        answer.read()
        assert answer.status == 200
    line.close()
    with Client(client.url, "wrong", 5) as stranger, pytest.raises(ServerError, match="401"):
        stranger(stream(1)[0])


def test_the_client_raises_the_errors_of_the_library(online, stream):
    client = online(window=0)
    (batch,) = stream(1)
    with pytest.raises(InputError, match="unknown modality 'radar'"):
        client({"radar": batch["audio"]})
    with pytest.raises(StateError, match="choose one of"):
        client.roll_back(99)
    with pytest.raises(OptionError, match="split it"):
        client({name: value.repeat(20, 1, 1) for name, value in batch.items()})
    with pytest.raises(OptionError, match="is not an address"):
        Client("127.0.0.1:8720")
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    listener.close()
    with pytest.raises(ServerError, match=r"no answer .* within 0.2 s: ConnectionRefused"):
        Client(f"http://127.0.0.1:{port}", timeout=0.2)(batch)


def test_a_client_that_goes_away_or_never_ends_its_body_harms_nobody(online, stream):
    (batch,) = stream(1)
    client = online(window=0, web={"timeout": 0.3})
    host, port = client.url.removeprefix("http://").split(":")
    head = (
        f"POST /predict HTTP/1.1\r\nHost: {host}\r\nContent-Type: {SAFETENSORS}\r\n"
        "Authorization: Bearer a token for the tests\r\n"
    )
    with socket.create_connection((host, int(port))) as line:  # gone in the middle of its body
        line.sendall(head.encode() + b"Content-Length: 1000\r\n\r\nxxx")
    with socket.create_connection((host, int(port)), timeout=120) as line:
        line.sendall(head.encode() + b"Content-Length: 1000\r\n\r\nxxx")
        assert b" 408 " in line.recv(1000)
    with socket.create_connection((host, int(port))) as line:  # gone before its answer
        body = pack(batch)
        line.sendall(head.encode() + f"Content-Length: {len(body)}\r\n\r\n".encode() + body)
    assert client(batch).logits.shape == (4, 3)


def test_a_hung_model_is_told_and_a_request_that_timed_out_is_learnt_once(
    online, make, gate, stream, wait_until
):
    (batch,) = stream(1)
    client = online(make(gate), window=0, hang=0.1, web={"timeout": 0.2})
    gate.open.clear()
    said = {}
    caller = threading.Thread(target=lambda: said.update(out=client(batch)))
    caller.start()
    wait_until(lambda: ask(client, "GET", "/healthz")[0] == 503)
    assert "restart the server" in ask(client, "GET", "/healthz")[1]["problem"]
    assert "dasp_busy_seconds" in client.metrics()  # its own figures, without the model's
    gate.open.set()
    caller.join(120)
    assert torch.equal(said["out"].logits, make()(batch).logits)
    assert ask(client, "GET", "/healthz")[1]["batches"] == 1


def test_states_go_through_the_client_and_metrics_are_prometheus(online, make, stream, tmp_path):
    batches = stream(4)
    client, alone = online(window=0), make()
    for batch in batches[:2]:
        client(batch)
        alone(batch)
    client.save(tmp_path / "state.safetensors")
    alone.load(tmp_path / "state.safetensors")
    client.reset()
    assert torch.equal(client(batches[0]).logits, make()(batches[0]).logits)
    client.load(tmp_path / "state.safetensors")
    assert torch.equal(client(batches[2]).logits, alone(batches[2]).logits)
    causes = [one["cause"] for one in client.history()]
    assert causes == ["start", "reset", "upload"]
    assert client.roll_back(0) == 0
    assert torch.equal(client(batches[3]).logits, make()(batches[3]).logits)
    found = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(client.metrics())
        for sample in family.samples
    }
    assert found["dasp_batches_total",] == found["dasp_journal_batches",] == 5
    assert found["dasp_requests_total", "/predict", "200"] == 5
    assert found["dasp_request_seconds_count",] == 5
    assert ("dasp_score", "audio") in found
