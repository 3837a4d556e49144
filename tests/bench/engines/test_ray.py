"""The Ray engine on a real cluster of this machine: the same files, whatever happens."""

import json
import os
import signal
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
import ray

from dasp.bench import engines, kinds, references
from dasp.bench.engines import open_engine
from dasp.bench.engines.ray import Ray, shipment
from dasp.bench.engines.ray.cluster import connected
from dasp.bench.engines.ray.news import News
from dasp.bench.engines.ray.shipment import pack
from dasp.bench.engines.ray.tasks import Board, Teller
from dasp.bench.kinds import run_any
from dasp.bench.plan import Entry, with_methods
from dasp.bench.references import find_method
from dasp.bench.results import is_done
from dasp.bench.runner import Streams, run_plan
from dasp.bench.work import Item
from dasp.cli import main
from dasp.core.errors import DataError, OptionError

WATCHED = Path(__file__).with_name("watched.py")
SMALL = WATCHED.parents[1] / "small.py"


@pytest.fixture(scope="module", autouse=True)
def _cluster(patiently):
    with ExitStack() as stack:
        patiently(lambda: stack.enter_context(connected(None, 2)))
        yield


@pytest.fixture
def place(place):
    return replace(place, workers=None)


def local(plan, place):
    return run_plan(plan, replace(place, workers=0), show=False)


def test_the_files_are_those_of_the_local_engine(plan, place, elsewhere, said):
    chosen = with_methods(plan, [*plan.methods, f"{SMALL}:Mine"])
    paths = run_plan(chosen, place, show=True, engine=Ray())
    assert len(paths) == 8
    assert said(paths) == said(local(chosen, elsewhere))
    stored = {path.name: path.read_bytes() for path in place.store.glob("*.npy")}
    assert stored == {path.name: path.read_bytes() for path in elsewhere.store.glob("*.npy")}


def test_what_is_done_is_not_done_again(watched, place, begun):
    paths = run_plan(watched, place, show=False, engine=Ray())
    assert sorted(seed for seed, *_ in begun()) == [0, 1, 2, 3]
    kept = paths[1].stat().st_mtime_ns
    paths[2].unlink()
    assert run_plan(watched, place, show=False, engine=Ray()) == paths
    assert [seed for seed, *_ in begun()][4:] == [2]
    assert paths[1].stat().st_mtime_ns == kept
    local(watched, place)
    assert len(begun()) == 5


def test_a_killed_worker_is_replaced(
    watched, place, elsewhere, folder, said, begun, meanwhile, wait_until
):
    (folder / "hold").touch()
    killed = []

    def kill():
        wait_until(begun)
        seed, process, _ = begun()[0]
        killed.append(seed)
        os.kill(process, signal.SIGKILL)
        (folder / "go").touch()

    with meanwhile(kill):
        paths = run_plan(watched, place, show=False, engine=Ray())
    seeds = [seed for seed, *_ in begun()]
    assert sorted(seeds) == sorted([0, 1, 2, 3, *killed])
    assert said(paths) == said(local(watched, elsewhere))


def test_an_error_of_a_cell_is_told_and_not_tried_again(watched, place, begun):
    entry = watched.methods["watched"]
    bad = replace(watched, methods={"bad": replace(entry, options=entry.options | {"fails": True})})
    bad = replace(bad, seeds=(0,))
    with pytest.raises(DataError, match=r"^this cell cannot be done: mend it$"):
        run_plan(bad, place, show=False, engine=Ray())
    assert len(begun()) == 1


def test_the_command_ends_as_with_the_local_engine(place, folder, plan, capsys, tmp_path):
    folder.mkdir()
    arguments = ["bench", "--methods", "source", "--method", f"{WATCHED}:Watched"]
    arguments += ["--set", "watched.fails=true", f"watched.folder='{folder}'"]
    arguments += ["--model", f"{SMALL}:build", "--protocol", "continual/video"]
    arguments += ["--corruptions", "contrast", "--samples", "8", "--store", str(place.store)]
    seen = []
    for engine in ("local", "ray"):
        results = ["--results", str(tmp_path / engine)]
        assert main([*arguments, *results, "--engine", engine]) == 2
        seen.append(capsys.readouterr().err.splitlines()[-1])
        assert len(list((tmp_path / engine).glob("*source*.json"))) <= 1
    assert seen == ["error: this cell cannot be done: mend it"] * 2


def test_an_interruption_keeps_what_is_done(
    watched, place, folder, elsewhere, said, begun, meanwhile, wait_until
):
    cells = watched.cells()

    def interrupt():
        wait_until(lambda: is_done(place.results, cells[0]) or is_done(place.results, cells[1]))
        (folder / "hold").touch()
        os.kill(os.getpid(), signal.SIGINT)

    many = replace(watched, seeds=tuple(range(40)))
    with meanwhile(interrupt), pytest.raises(KeyboardInterrupt):
        run_plan(many, place, show=False, engine=Ray())
    (folder / "go").touch()
    done = list(place.results.glob("*.json"))
    assert 1 <= len(done) < 40
    kept = {path: path.stat().st_mtime_ns for path in done}
    paths = run_plan(watched, place, show=False, engine=Ray())
    assert len(begun()) < 40  # what was cancelled does not go on
    assert said(paths) == said(local(watched, elsewhere))
    assert all(path.stat().st_mtime_ns == time for path, time in kept.items())


@pytest.mark.parametrize("kind", ["indicators", "flags"])
def test_other_kinds_of_plan(plan, place, elsewhere, said, kind):
    views = replace(plan, kind=kind, corruptions=("contrast",), batch_sizes=(8, 16))
    paths = run_any(views, place, show=False, engine=Ray())
    assert said(paths) == said(run_any(views, replace(elsewhere, workers=0), show=False))


LATE = """
import time
import torch
from pathlib import Path
from dasp.core.errors import DataError
from dasp.models import CavMae

class Late(CavMae):
    def encode(self, inputs):
        end = time.monotonic() + 120
        while "audio" in inputs and not Path({go!r}).exists():
            if time.monotonic() > end:
                raise DataError("no cell was done before all arrays were")
            time.sleep(0.02)
        return super().encode(inputs)

def build():
    torch.manual_seed(0)
    return Late(
        embed_dim=16, num_heads=2, depth=1, mlp_ratio=1.0,
        audio_length=64, image_size=64, num_classes=36,
    )
"""


def test_a_cell_waits_for_its_own_arrays_only(plan, place, tmp_path, meanwhile, wait_until):
    """The sounds of the first model are encoded only when a cell of the second is done."""
    late, go = tmp_path / "late.py", tmp_path / "go"
    late.write_text(LATE.format(go=str(go)))
    both = replace(
        plan,
        models=(f"{late}:build", f"{SMALL}:build"),
        methods={"source": Entry("source")},
        protocols=("continual/video",),
    )

    def release():
        wait_until(lambda: any(place.results.glob("*small*.json")))
        go.touch()

    with meanwhile(release):
        assert len(run_plan(both, place, show=False, engine=Ray())) == 2


def test_own_files_go_with_the_run(watched, place, tmp_path, monkeypatch):
    """The workers began in another folder, where this relative path leads nowhere."""
    (tmp_path / "mine.py").write_text(SMALL.read_text())
    monkeypatch.chdir(tmp_path)
    own = replace(with_methods(watched, ["mine.py:Mine"]), models=("mine.py:build",), seeds=(0,))
    (path,) = run_plan(own, place, show=False, engine=Ray())
    assert json.loads(path.read_text())["cell"]["method"] == "mine.py:Mine"


def test_own_files_that_a_node_lacks_are_unpacked(plan, place, tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(SMALL.read_text())
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(references, "_moved", {})
    own = with_methods(plan, ["mine.py:Mine"])
    packed = pack(Streams(own.data), [Item(own.models[0], tuple(own.cells()))], place)
    (tmp_path / "mine.py").unlink()
    packed.unpack()
    assert find_method("mine.py:Mine").__name__ == "Mine"
    assert not (tmp_path / "mine.py").exists()


def test_other_software_on_a_node_is_refused(plan, place, monkeypatch):
    other = shipment.versions() | {"dasp": "0.0.1 (code 00000000)"}
    monkeypatch.setattr(shipment, "versions", lambda: other)
    with pytest.raises(OptionError, match=r"node of the cluster has dasp .* started by 0\.0\.1"):
        run_plan(plan, place, show=False, engine=Ray())
    assert not list(place.results.glob("*.json"))


def test_another_model_on_a_node_is_refused(plan, place):
    packed = pack(Streams(plan.data), [Item(plan.models[0], tuple(plan.cells()))], place)
    with pytest.raises(DataError, match="other weights on a node"):
        packed.features(plan.models[0], "0123456789abcdef")


@pytest.mark.parametrize("needs", [{"gpus_per_cell": 1.0}, {"cpus_per_cell": 64.0}])
def test_a_cell_that_fits_nowhere_is_refused(plan, place, needs):
    with pytest.raises(OptionError, match=r"no node .*there are: 2 CPU, 0 GPU"):
        run_plan(plan, place, show=False, engine=Ray(**needs))


@pytest.mark.parametrize("needs", [{"gpus_per_cell": -1.0}, {"cpus_per_cell": 0.0}])
def test_impossible_needs_are_refused(needs):
    with pytest.raises(OptionError, match="cpus-per-cell is more than 0"):
        Ray(**needs)


def test_a_retried_task_is_counted_once():
    board = Board()
    board.add("key", "row", 3, {"adapt": 1.0})
    board.begin("key", "row")
    board.add("key", "row", 5, {})
    board.begin("other", "row")
    assert [steps for _, steps, _ in board.take()] == [3, -3, 5]
    assert board.take() == []


def test_the_bars_end_with_all_that_was_told():
    news = News()
    tell = Teller(news.board, "key", "row")
    tell(2, {"adapt": 1.0})
    tell(1, {"adapt": 0.5, "load": 0.25})
    tell.tell()
    ray.get(news.board.begin.remote("other", "row"))  # all before it has arrived
    news.put(("", 0, {}))
    assert news.get() == ("row", 3, {"adapt": 1.5, "load": 0.25})
    assert news.get() == ("", 0, {})


def test_without_the_extra_the_error_names_it(monkeypatch):
    monkeypatch.setattr(engines, "find_spec", lambda name: None)
    with pytest.raises(OptionError, match=r"pip install 'dasp-tta\[ray\]'"):
        open_engine("ray")


def test_flags_of_the_cluster_need_the_engine(capsys):
    assert main(["bench", "quick", "--address", "auto", "--dry-run"]) == 2
    assert "--address is for clusters: give --engine ray" in capsys.readouterr().err


def test_costs_are_measured_here_whatever_the_engine(plan, place, monkeypatch):
    asked = []
    monkeypatch.setattr(kinds, "run_efficiency", lambda *given: asked.append(given) or [])
    assert run_any(replace(plan, kind="efficiency"), place, show=False, engine=Ray()) == []
    assert len(asked) == 1


@pytest.mark.parametrize(("address", "workers"), [(None, 0), ("auto", 2)])
def test_workers_are_those_of_a_cluster_started_here(plan, place, address, workers):
    with pytest.raises(OptionError, match="--workers is the number of CPUs"):
        run_plan(plan, replace(place, workers=workers), show=False, engine=Ray(address))


def test_data_and_store_are_found_from_any_folder(plan, place, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    noise = replace(plan.data, noise_dir=Path("noise"), root=Path("clips"))
    opened = []
    monkeypatch.setattr(type(noise), "open", lambda data: opened.append(data))
    packed = pack(Streams(noise), [], replace(place, store=Path("store")))
    assert opened == [replace(noise, noise_dir=tmp_path / "noise", root=tmp_path / "clips")]
    assert packed.place.store == tmp_path / "store"
    for of_a_node in (Path("$TMPDIR/store"), Path("~/store")):
        assert pack(Streams(noise), [], replace(place, store=of_a_node)).place.store == of_a_node


def test_weights_are_found_from_any_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = ["sounding_shapes_0", "sounding_shapes_0:int8", "w.pth", "w.pth:int8"]
    here = [*names[:2], f"{tmp_path / 'w.pth'}", f"{tmp_path / 'w.pth'}:int8"]
    assert [references.absolute(name) for name in names] == here
