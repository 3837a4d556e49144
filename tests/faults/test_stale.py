"""Results belong to the code and the data that made them: what changes a key, and what does not."""

import gzip
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import dasp
from dasp.bench.code import PACKAGE, code_of, read_code
from dasp.bench.datasets import HASHES, DataOptions, _hashes
from dasp.bench.engines import Workspace
from dasp.bench.features import Features, FeatureSpec
from dasp.bench.plan import MethodRow, Plan
from dasp.bench.runner import run_plan
from dasp.core.errors import DataError
from dasp.corruptions.base import registry
from dasp.models import CavMae, save_weights

SMALL = Path(__file__).parents[1] / "bench" / "small.py"
SIZES = {"embed_dim": 16, "num_heads": 2, "depth": 1, "num_classes": 2}
MODEL = """
import torch
from small_parts import CavMae, SIZES

class Mine(CavMae):
    answer = 0

    def fuse(self, tokens):
        fused = super().fuse(tokens)
        fused.logits[:, self.answer] += 100
        return fused

def build():
    torch.manual_seed(0)
    return Mine(**SIZES, audio_length=64, image_size=64)

def other():
    model = build()
    model.answer = 7
    return model
"""


@pytest.fixture
def user(tmp_path, monkeypatch):
    """A folder of the user's own code, which one file imports from another."""
    (tmp_path / "small_parts.py").write_text(SMALL.read_text())
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("ma", "mb"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "model.py").write_text(MODEL)
    yield tmp_path
    sys.modules.pop("small_parts", None)


@pytest.fixture
def one():
    return Plan(
        data=DataOptions(samples=60),
        methods={"source": MethodRow("source")},
        protocols=("interleaved",),
        corruptions=("fog",),
        batch_sizes=(8,),
    )


def keys(plan):
    return [job.run.key for _, job in plan.jobs()]


def test_models_of_one_name_are_run_each_for_itself(user, one):
    second = user / "mb" / "model.py"
    second.write_text(MODEL.replace("answer = 0", "answer = 1"))
    files = [f"{user}/ma/model.py:build", f"{second}:build", f"{second}:other"]
    workspace = Workspace(user / "results", user / "store", workers=0)
    apart = replace(workspace, results=user / "apart")  # where each is called "model"
    alone = [run_plan(replace(one, models=(file,)), apart, show=False) for file in files]
    counts = [rows["source"][0].counts for rows in alone]
    assert len({str(count.domains) for count in counts}) == 3
    together = run_plan(replace(one, models=tuple(files)), workspace, show=False)["source"]
    assert [result.counts for result in together] == counts
    names = [result.run.model["name"] for result in together]
    assert names == ["ma/model:build", "mb/model:build", "model:other"]
    assert dasp.results(apart.results).model.nunique() == 3


def test_an_edited_method_of_the_users_own_is_another(user, one):
    file = user / "mine.py"
    own = replace(one, methods={"mine": MethodRow(f"{file}:Mine")})
    own = replace(own, models=(f"{SMALL}:build",))
    file.write_text(SMALL.read_text())
    before = keys(own)
    file.write_text(SMALL.read_text().replace("self.weight *", "2 * self.weight *"))
    assert keys(own) != before


def test_models_are_known_by_their_code_and_what_they_say(user, one):
    file = user / "ma" / "model.py"
    plan = replace(one, models=(f"{file}:build",))
    before = keys(plan)
    assert keys(plan) == before
    assert keys(replace(one, models=(f"{user}/mb/model.py:build",))) == before  # the same code
    assert keys(replace(one, models=(f"{file}:other",))) != before  # the same weights
    file.write_text(MODEL.replace("answer = 0", "answer = 2"))
    assert keys(plan) != before
    file.write_text(MODEL)
    assert keys(plan) == before
    parts = sys.modules["small_parts"].CavMae
    encode = parts.encode
    try:  # as if a file that it imports had been edited
        parts.encode = lambda model, inputs: {n: 0 * v for n, v in encode(model, inputs).items()}
        assert keys(plan) != before
    finally:
        parts.encode = encode


@pytest.fixture
def clips(tmp_path, media, one):
    root = media.write_folders(tmp_path / "clips")
    torch.manual_seed(0)
    save_weights(CavMae(**SIZES), tmp_path / "m.safetensors")
    data = DataOptions("folder", root=root)
    return replace(one, data=data, models=(str(tmp_path / "m.safetensors"),))


def test_replaced_clips_are_other_data_and_touched_ones_are_not(clips, monkeypatch, tmp_path):
    before, read = keys(clips), []
    sound, *_ = sorted(clips.data.root.rglob("*.wav"))
    whole = sound.read_bytes()
    results = Workspace(tmp_path / "results", tmp_path / "store", workers=0)
    run_plan(clips, results, show=False)
    sound.write_bytes(whole[:-100] + bytes(100))
    assert keys(clips) != before
    run_plan(clips, results, show=False)
    assert len(dasp.results(results.results)) == 2
    sound.write_bytes(whole)
    assert keys(clips) == before
    monkeypatch.setattr("dasp.bench.datasets.file_digest", lambda path: read.append(path) or "")
    _hashes.clear()  # as in a new process
    assert keys(clips) == before
    assert not read
    os.utime(sound)
    keys(clips)
    assert read == [sound]


@pytest.mark.parametrize("option", ["noise_dir", "frost_dir"])
def test_recordings_enter_the_key_by_content(clips, media, tmp_path, option):
    folder = tmp_path / "own"
    folder.mkdir()
    changed = replace(clips, data=replace(clips.data, **{option: folder}))
    (folder / "x.wav").write_bytes(b"1")
    (folder / "y.wav").write_bytes(b"the same")
    before = keys(changed)
    assert before != keys(clips)
    (folder / "x.wav").write_bytes(b"2")
    assert keys(changed) != before
    (folder / "x.wav").write_bytes(b"1")
    assert keys(changed) == before
    nowhere = replace(clips, data=replace(clips.data, **{option: folder / "nowhere"}))
    with pytest.raises(DataError, match="nowhere is not a directory"):
        keys(nowhere)


@pytest.mark.parametrize("damage", [b"[]", b"{", b"\xff", b'{"a/0.wav": 3}'])
def test_a_damaged_list_of_hashes_is_made_again(clips, damage):
    before = keys(clips)
    (clips.data.root / HASHES).write_bytes(damage)
    _hashes.clear()
    assert keys(clips) == before


def test_a_corruption_of_the_users_own_changes_no_protocol(one):
    plan = replace(one, protocols=("continual/video", "interleaved", "pairs", "mixed"))
    plan = replace(plan, corruptions=())
    before, entries = keys(plan), registry("video")
    entries["mine"] = entries["fog"]
    try:
        assert keys(plan) == before
        only = replace(plan, protocols=("continual/video",), corruptions=("mine",))
        assert only.jobs()[0][1].run.visits == 1
    finally:
        del entries["mine"]


def test_the_code_of_a_method_is_what_it_runs_without_comments(tmp_path):
    tent, triage = code_of("tent"), code_of("triage")
    shared = {"methods/losses.py", "methods/loop.py", "streams/protocols.py", "bench/cells.py"}
    assert shared | {"methods/tent.py", "models/cav_mae.py"} <= set(tent)
    assert {"methods/triage.py", "methods/dasp.py"} <= set(triage) - set(tent)
    assert not {"methods/eata.py", "cli/main.py", "report/tables.py"} & set(triage)
    for name in ("methods/losses.py", "methods/loop.py", "methods/diagnosis.py"):
        text, copy = (PACKAGE / name).read_text(), tmp_path / Path(name).name
        for edited, same in ((f"# why\n{text}\n\n", True), (f"{text}\nX = 1\n", False)):
            copy.write_text(edited.replace('"""', '"""In other words: ', 1))
            read_code.cache_clear()
            assert (read_code(copy)[0] == triage[name]) == same


@pytest.mark.parametrize(
    ("edited", "same"), [("models/layers.py", False), ("methods/loop.py", True)]
)
def test_features_of_other_code_are_made_again(one, monkeypatch, edited, same):
    model = CavMae(**SIZES)
    features = [Features(one.data.open(), model, None) for _ in range(2)]
    before = features[0].key(FeatureSpec("video", None, encoded=True))

    def read(path):
        found, imported = read_code(path)
        return ("other" if path == PACKAGE / edited else found), imported

    monkeypatch.setattr("dasp.bench.code.read_code", read)
    assert (features[1].key(FeatureSpec("video", None, encoded=True)) == before) == same


def test_results_of_other_code_are_named_and_made_again_if_asked(user):
    copy = shutil.copytree(PACKAGE, user / "dasp", ignore=shutil.ignore_patterns("*.safetensors"))
    (user / "own.toml").write_text(
        f'models = ["{SMALL}:build"]\nmethods = ["source", "tent"]\nprotocols = ["interleaved"]\n'
        'corruptions = ["fog"]\nbatch_sizes = [8]\n[data]\nsamples = 16\n'
    )

    def bench(*flags):
        command = [sys.executable, "-m", "dasp", "bench", "own.toml", "--results", "r", *flags]
        done = subprocess.run(command, env=environment, cwd=user, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return " ".join(done.stdout.split())

    environment = os.environ | {"PYTHONPATH": str(user), "OMP_NUM_THREADS": "1"}
    said = bench("--workers", "0")
    assert "0 done already" in said
    losses = copy / "methods" / "losses.py"
    losses.write_text("# A comment.\n" + losses.read_text())
    said = bench("--dry-run")
    assert "2 done already" in said
    assert "other code" not in said
    losses.write_text(losses.read_text().replace("log_p.exp() * log_p", "log_p.exp() ** 2 * log_p"))
    said = bench("--dry-run")
    assert "2 of them were made by other code of methods/losses.py, with the same version" in said
    before = gzip.decompress((user / "r" / "runs.jsonl.gz").read_bytes())
    bench("--workers", "0", "--again")
    said = bench("--dry-run")
    assert "2 done already" in said
    assert "other code" not in said
    after = gzip.decompress((user / "r" / "runs.jsonl.gz").read_bytes())
    assert len(after.splitlines()) == len(before.splitlines()) == 2
    assert after != before
