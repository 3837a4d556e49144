"""A served model under load: many clients, faults and kills; and what adapting costs there.

    python benchmarks/serving.py --clients 50 --seconds 300            # load, then ratios
    python benchmarks/serving.py --seconds 0                           # only the ratios
    python benchmarks/serving.py --seconds 0 --rounds 0 --steady 400   # only the memory

Load: each client sends batches of 1 to 4 samples, and in one of five requests something else: bytes
that are not a batch, NaN, a wrong token, or a connection that is cut. The server is killed with
SIGKILL twice and started again. Counted are answers that docs/serving.md does not promise; at the
end every answer is compared with the journal, and the journal is replayed.

Ratios: triage beside plain inference (`source`) behind the same endpoint, in turn, with the same
clients and no faults: processor time per request of the server's process, requests per second, and
the time to an answer.

Memory: that of the server's process, by minute, with the same clients and no faults.
"""

import http.client
import os
import random
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import torch
from measuring import finish, parse

import dasp
from dasp.bench.references import find_model
from dasp.client import Client
from dasp.data.shapes import SoundingShapes
from dasp.serve import replay
from dasp.serve.journal import read_records, segments
from dasp.serve.worker import turns
from dasp.service.wire import SAFETENSORS, pack

TOKEN, MODEL, METHOD = "a token for benchmarks", "sounding_shapes_0", "triage"
FLAGS = ("--samples", "64", "--window", "20", "--checkpoint-every", "50")
FAULTS = {"rubbish": {422}, "nan": {200}, "stranger": {401}, "cut": set()}  # what is promised
PAGE = os.sysconf("SC_PAGE_SIZE")
TICK = os.sysconf("SC_CLK_TCK")


class Server:
    """The command `dasp serve` in a process of its own."""

    def __init__(self, folder: Path, method: str, *flags: str) -> None:
        self.words = [sys.executable, "-m", "dasp", "serve", "--model", MODEL, "--method", method]
        self.words += ["--folder", str(folder), *FLAGS, *flags]
        self.port, self.memory = 0, []
        self.start()

    def start(self) -> float:
        """Start it at the same port; return the seconds until it listens."""
        began = time.monotonic()
        self.process = subprocess.Popen(
            [*self.words, "--port", str(self.port)],
            env=os.environ | {"DASP_TOKEN": TOKEN},
            stdout=subprocess.PIPE,
            text=True,
        )
        said = self.process.stdout.readline()
        self.port = int(said.split(":")[2].split(",")[0])
        self.memory.append([])
        return time.monotonic() - began

    def kill(self, how: int = signal.SIGKILL) -> None:
        self.process.send_signal(how)
        self.process.communicate()

    def megabytes(self) -> float:
        return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * PAGE / 1e6

    def processor(self) -> float:
        """Return the seconds of processor time so far."""
        words = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(words[11]) + int(words[12])) / TICK

    def client(self) -> Client:
        return Client(f"http://127.0.0.1:{self.port}", TOKEN, timeout=600)


@dataclass
class Notes:
    """What the clients have seen."""

    name: str = field(default_factory=lambda: uuid.uuid4().hex)  # no request is asked again
    counts: Counter = field(default_factory=Counter)
    odd: list = field(default_factory=list)
    seconds: list = field(default_factory=list)
    answers: dict = field(default_factory=dict)


def raw(server: Server, kind: str, batch: bytes) -> set[int]:
    """Send something else than a batch; return the status of the answer if there is one."""
    token = "wrong" if kind == "stranger" else TOKEN
    headers = {"Authorization": f"Bearer {token}", "Content-Type": SAFETENSORS}
    if kind == "cut":
        with socket.create_connection(("127.0.0.1", server.port), 60) as line:
            told = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
            head = f"POST /predict HTTP/1.1\r\nHost: x\r\n{told}Content-Length: {len(batch)}\r\n"
            line.sendall(head.encode() + b"\r\n" + batch[: len(batch) // 2])
        return set()
    line = http.client.HTTPConnection("127.0.0.1", server.port, timeout=600)
    try:
        line.request("POST", "/predict", os.urandom(200) if kind == "rubbish" else batch, headers)
        answer = line.getresponse()
        answer.read()
        return {answer.status}
    finally:
        line.close()


def send(server: Server, number: int, end: float, faults: bool, notes: Notes, pool: dict) -> None:
    """Be one client until the time is over."""
    draw, sent = random.Random(number), 0
    with server.client() as client:
        while time.monotonic() < end:
            size, start = draw.randint(1, 4), draw.randrange(60)
            batch = {name: own[start : start + size] for name, own in pool.items()}
            kind = draw.choice(list(FAULTS)) if faults and draw.random() < 0.2 else "batch"
            try:
                if kind == "batch":
                    began, name = time.monotonic(), f"{notes.name}-{number}-{sent}"
                    notes.answers[name] = client(batch, request_id=name).logits
                    notes.seconds.append(time.monotonic() - began)
                else:
                    spoilt = {name: own * torch.nan for name, own in batch.items()}
                    found = raw(server, kind, pack(spoilt if kind == "nan" else batch))
                    if not found <= FAULTS[kind]:
                        notes.odd.append((kind, found))
                notes.counts[kind] += 1
            except (OSError, http.client.HTTPException):
                notes.counts[f"{kind}, during a kill"] += 1  # a raw request is not sent again
            except Exception as error:
                notes.odd.append((kind, repr(error)))
            sent += 1


def crowd(server: Server, clients: int, seconds: float, faults: bool, pool: dict) -> Notes:
    """Let clients send for some time; with faults, kill the server twice."""
    notes, end = Notes(), time.monotonic() + seconds
    given = (end, faults, notes, pool)
    threads = [threading.Thread(target=send, args=(server, n, *given)) for n in range(clients)]
    for thread in threads:
        thread.start()
    kills = [end - seconds * 2 / 3, end - seconds / 3] if faults else []
    while any(thread.is_alive() for thread in threads):
        time.sleep(0.25)
        if kills and time.monotonic() > kills[0]:
            kills.pop(0)
            server.kill()
            notes.counts["kills"] += 1
            print(f"killed; listens again after {server.start():.0f} s", flush=True)
        server.memory[-1].append(server.megabytes())
    return notes


def load(folder: Path, clients: int, seconds: float, pool: dict) -> dict[str, object]:
    """Return what a crowd with faults has seen, and what the journal says."""
    server = Server(folder, METHOD, "--keep", "0")
    notes = crowd(server, clients, seconds, True, pool)
    server.kill(signal.SIGTERM)
    written, twice = {}, 0
    for segment in segments(folder):
        for batch, _, answer in turns(read_records(segment.records)):
            if answer is not None and "error" not in answer.facts:
                about = batch.facts["requests"]
                rows = answer.tensors["logits"].split([one["size"] for one in about])
                for one, own in zip(about, rows, strict=True):
                    twice += bool(one["id"]) and one["id"] in written
                    written[one["id"]] = own
    known = {name: own for name, own in notes.answers.items() if name in written}
    other = sum(not torch.equal(own, written[name]) for name, own in known.items())
    lost = len(notes.answers) - len(known)
    began = time.monotonic()
    report = replay(dasp.adapt(find_model(MODEL), METHOD), folder)
    return {
        "sent": dict(notes.counts),
        "answers": {
            "not_promised": len(notes.odd), "lost": lost, "learned_twice": twice,
            "other_than_in_the_journal": other, "examples": str(notes.odd[:3]),
        },
        "replay": {
            "batches": report.batches, "requests": report.requests,
            "differing": len(report.differing), "seconds": round(time.monotonic() - began),
        },
        "seconds_to_an_answer": quantiles(notes.seconds),
    }  # fmt: skip


def ratios(folder: Path, clients: int, rounds: int, seconds: float, pool: dict) -> dict:
    """Return our method relative to plain inference, medians over rounds, taken in turn."""
    servers = {name: Server(folder / name, name) for name in ("source", METHOD)}
    found: dict[str, list[dict[str, float]]] = {name: [] for name in servers}
    for _ in range(rounds):
        for name, server in servers.items():
            before = server.processor()
            notes = crowd(server, clients, seconds, False, pool)
            count = notes.counts["batch"]
            cost = {"processor_ms_per_request": 1000 * (server.processor() - before) / count}
            found[name].append(
                cost | {"requests_per_second": count / seconds} | quantiles(notes.seconds)
            )
    for server in servers.values():
        server.kill(signal.SIGTERM)
    names = found["source"][0]
    pairs = list(zip(found[METHOD], found["source"], strict=True))
    return {
        **{
            name: {n: round(statistics.median(one[n] for one in own), 4) for n in names}
            for name, own in found.items()
        },
        "ratio": {n: round(statistics.median(a[n] / b[n] for a, b in pairs), 3) for n in names},
    }


def steady(folder: Path, clients: int, seconds: float, pool: dict) -> dict[str, dict[str, float]]:
    """Return the memory of a server that is not killed, and the requests so far, by minute."""
    server, found, sent = Server(folder, METHOD), {}, 0
    for minute in range(1, int(seconds // 60) + 1):
        notes = crowd(server, clients, 60, False, pool)
        sent += notes.counts["batch"]
        found[f"minute {minute}"] = {
            "requests": sent,
            "median_mb": round(statistics.median(server.memory[-1]), 1),
            "highest_mb": round(max(server.memory[-1]), 1),
        }
        server.memory.append([])
    server.kill(signal.SIGTERM)
    return found


def capacity(folder: Path, pool: dict, milliseconds: float) -> dict[str, float]:
    """Return what a plan for many devices needs: sizes, and requests per second of one core."""
    tta = dasp.adapt(find_model(MODEL), METHOD)
    for _ in range(4):  # then its memory of recent samples is full
        tta(pool)
    tta.save(folder / "state.safetensors")
    state = (folder / "state.safetensors").stat().st_size
    request = len(pack({name: own[:4] for name, own in pool.items()}))
    model = sum(own.nbytes for own in tta.model.state_dict().values())
    return {
        "state_kb": round(state / 1e3), "states_per_gb": round(1e9 / state),
        "model_and_state_mb": round((model + state) / 1e6, 1),
        "request_of_4_samples_kb": round(request / 1e3),
        "requests_per_second_and_core": round(1000 / milliseconds, 1),
    }  # fmt: skip


def quantiles(seconds: list[float]) -> dict[str, float]:
    ordered = sorted(seconds)
    return {
        name: round(ordered[int(share * (len(ordered) - 1))], 4)
        for name, share in (("median_s", 0.5), ("p95_s", 0.95), ("p99_s", 0.99))
    }


def main() -> None:
    options = parse(__doc__, clients=50, seconds=300, rounds=3, round_seconds=20, steady=0)
    torch.set_num_threads(1)
    samples = [SoundingShapes("test", 72)[place] for place in range(64)]
    pool = {n: torch.stack([s.inputs[n] for s in samples]) for n in samples[0].inputs}
    figures: dict[str, object] = {}
    with tempfile.TemporaryDirectory() as folder:
        if options.seconds:
            place = Path(folder, "load")
            figures["load"] = load(place, options.clients, options.seconds, pool)
        if options.rounds:
            given = options.clients, options.rounds, options.round_seconds, pool
            found = figures[f"{METHOD} beside plain inference"] = ratios(Path(folder), *given)
            cost = found[METHOD]["processor_ms_per_request"]
            figures["capacity"] = capacity(Path(folder), pool, cost)
        if options.steady:
            place = Path(folder, "steady")
            figures["memory"] = steady(place, options.clients, options.steady, pool)
    finish(options, "A served model under load", figures)


if __name__ == "__main__":
    main()
