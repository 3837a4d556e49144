import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from dasp.bench.plan import Entry

WATCHED = Path(__file__).with_name("watched.py")
SMALL = WATCHED.parents[1] / "small.py"


@pytest.fixture(scope="session")
def patiently():
    """Start a cluster again where Ray gave up: on a busy machine it takes more than it waits."""

    def start(function, *given, **more):
        for _ in range(4):
            with suppress(Exception):
                return function(*given, **more)
        return function(*given, **more)

    return start


@pytest.fixture
def watched(plan, tmp_path):
    """Four runs of a method that can be watched and held."""
    folder = tmp_path / "watched"
    folder.mkdir()
    entry = Entry(f"{WATCHED}:Watched", {"folder": str(folder), "lr": 1e-3})
    return replace(
        plan, methods={"watched": entry}, protocols=("continual/video",), seeds=(0, 1, 2, 3)
    )


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "watched"


@pytest.fixture
def begun(folder):
    """Give (seed, process, node) of each time that a watched cell has begun, the first first."""

    def read():
        names = sorted(path.name.split("-") for path in folder.glob("begun-*"))
        return [(int(seed), int(process), node) for _, _, seed, process, node in names]

    return read


@pytest.fixture
def elsewhere(place, tmp_path):
    """Another place, for the run to compare with."""
    return replace(place, results=tmp_path / "other", store=tmp_path / "other_store")


@pytest.fixture
def said():
    """Give each file's bytes up to what was measured."""

    def read(paths):
        return {path.name: path.read_bytes().partition(b'\n "measured"')[0] for path in paths}

    return read


@pytest.fixture
def wait_until():
    """Wait until something is true; an error instead of a hang."""

    def wait(true):
        end = time.monotonic() + 120
        while not true():
            assert time.monotonic() < end
            time.sleep(0.02)

    return wait


@pytest.fixture
def meanwhile():
    """Act in a thread while the block goes on in this one."""

    @contextmanager
    def act(function):
        thread = threading.Thread(target=function, daemon=True)
        thread.start()
        yield
        thread.join()

    return act
