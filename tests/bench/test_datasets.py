"""Data sets by name: the built-in one, clips on disk in READ's layout, and a user's own."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from dasp.bench.datasets import BuiltIn, Clips, DataOptions
from dasp.bench.plan import MethodRow, Plan, load_plans
from dasp.bench.runner import run_plan
from dasp.cli.main import main
from dasp.core.errors import ContractError, DataError, OptionError
from dasp.data import open_manifest, prepare_tree
from dasp.data.clips import SPECS, read_entries, write_list
from dasp.models import CavMae, save_weights
from dasp.streams.domains import Domain

SMALL = Path(__file__).with_name("small.py")


@pytest.fixture(scope="module")
def kinetics(tmp_path_factory, media):
    """Six clips of two classes under the names of the release."""
    folder = tmp_path_factory.mktemp("ks50")
    for label in ("bark", "rain"):
        for number in range(3):
            path = folder / "videos" / label / f"{label}{number}.mp4"
            media.write_video(path, pitch=200.0 + 100 * number)
    root, spec = folder / "data", SPECS["kinetics50"]
    prepare_tree(folder / "videos", root, workers=0)
    names = {"test.json": spec.list_file, "labels.csv": spec.label_file}
    names |= {"audio": spec.audio_dir, "video": spec.video_dir}
    for old, new in names.items():
        (root / old).rename(root / new)
    return root


@pytest.fixture
def clips(kinetics, tmp_path):
    """Two runs on these clips."""
    torch.manual_seed(0)
    weights = tmp_path / "tiny.safetensors"
    save_weights(CavMae(embed_dim=16, num_heads=2, depth=1, num_classes=2), weights)
    return Plan(
        data=DataOptions("kinetics50", root=kinetics),
        models=(str(weights),),
        methods={name: MethodRow(name) for name in ("source", "dasp")},
        protocols=("interleaved",),
        corruptions=("fog", "rain"),
        batch_sizes=(4,),
    )


@pytest.fixture
def training_list(kinetics):
    """A list of training clips, beside that of the test clips."""
    spec = SPECS["kinetics50"]
    entries = [
        {**entry, "wav": f"{spec.audio_dir}/{entry['video_id']}.wav", "video_path": spec.video_dir}
        for entry in read_entries(kinetics / spec.list_file)
    ]
    path = kinetics / "train.json"
    write_list(path, entries[::2])
    yield path
    path.unlink()


def test_a_plan_runs_on_clips_with_published_options(clips, workspace):
    rows = run_plan(clips, workspace, show=False)
    for (result,) in rows.values():
        assert result.run.data["name"] == "kinetics50"
        assert result.run.data["noise"] == "synthesised"
        assert result.run.options["lr"] == 1e-4  # not the one tuned for the built-in set
        assert result.counts.seen == 12


def test_a_broken_clip_is_named_or_left_out_and_listed(clips, kinetics, workspace):
    broken = kinetics / SPECS["kinetics50"].audio_dir / "bark1.wav"
    whole = broken.read_bytes()
    broken.write_bytes(b"")
    try:
        with pytest.raises(DataError, match=r"bark1\.wav"):
            run_plan(clips, workspace, show=False)
        skipping = replace(clips, data=replace(clips.data, on_bad="skip"))
        rows = run_plan(skipping, workspace, show=False)
    finally:
        broken.write_bytes(whole)
    for (result,) in rows.values():
        assert result.counts.seen == 10
        assert [entry["id"] for entry in result.counts.skipped] == ["bark1"]
        assert result.run.data != clips.data.open().identity


def test_source_clips_are_asked_for_and_taken(clips, workspace, training_list):
    fitted = replace(clips, methods={name: MethodRow(name) for name in ("brimpr", "sumi")})
    with pytest.raises(OptionError, match=r"by --source-split \(train for train\.json\)"):
        fitted.jobs()
    with pytest.raises(DataError, match=r"learn\.json does not exist"):
        replace(fitted, data=replace(clips.data, source_split="learn")).jobs()
    fitted = replace(fitted, data=replace(clips.data, source_split="train"))
    rows = run_plan(fitted, workspace, show=False)
    runs = {label: result.run for label, (result,) in rows.items()}
    assert runs["brimpr"].source["samples"] == 3
    assert runs["brimpr"].data == runs["sumi"].data
    assert runs["sumi"].source == {}


def test_source_clips_are_drawn_from_the_whole_list(kinetics):
    manifest = open_manifest(kinetics, "kinetics50")
    many = replace(manifest, clips=tuple(replace(manifest.clips[0], id=str(i)) for i in range(500)))
    clips = Clips(manifest, training=many)
    drawn = [int(clip.id) for clip in clips.source(32).manifest.clips]
    assert len(set(drawn)) == 32
    assert drawn == sorted(drawn)
    assert max(drawn) > 250
    assert [int(clip.id) for clip in clips.source(32).manifest.clips] == drawn


def test_every_plan_of_the_paper_can_be_made_of_clips(clips, training_list):
    data = replace(clips.data, source_split="train", samples=4)
    for plan in load_plans("paper").values():
        jobs = replace(plan, data=data, models=clips.models).jobs()
        assert {job.run.data["name"] for _, job in jobs} == {"kinetics50"}


def test_the_built_in_set_gives_one_modality_under_its_own_domain():
    dataset = BuiltIn(4)
    fog = Domain("video", "fog", 5)
    clean, damaged = (dataset.samples("video", domain)[1] for domain in (None, fog))
    assert set(clean.inputs) == {"video"}
    assert not torch.equal(clean.inputs["video"], damaged.inputs["video"])
    assert [int(dataset.samples("audio", None)[i].label) for i in range(4)] == dataset.labels()
    assert dataset.source(2).identity == dataset.identity | {"split": "train", "samples": 2}
    assert DataOptions(samples=4).open() is DataOptions(samples=4).open()


def test_a_fault_of_a_users_data_set_is_one_line_that_names_the_sample(
    tmp_path, monkeypatch, capsys
):
    own = tmp_path / "mine.py"
    own.write_text(
        "from small import Levels\n\n"
        "class Bad(Levels):\n"
        "    def samples(self, modality, domain):\n"
        "        inner = super().samples(modality, domain)\n"
        "        class Samples:\n"
        "            __len__ = lambda _: len(inner)\n"
        "            def __getitem__(_, row):\n"
        "                return inner[row] if row < 3 else {}['gone']\n"
        "        return Samples()\n"
    )
    monkeypatch.syspath_prepend(SMALL.parent)
    words = f"bench --data {own}:Bad --models {SMALL}:build --methods source --protocols clean"
    words += f" --results {tmp_path / 'r'} --store {tmp_path / 's'} --workers 0"
    assert main(words.split()) == 2
    told = capsys.readouterr().err
    assert "sample 3 (clean) failed with KeyError: 'gone' (mine.py, line 9)" in told
    assert "Traceback" not in told
    monkeypatch.setenv("DASP_DEBUG", "1")
    assert main(words.split()) == 2
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "line"),
    [("import json\n\n\ndef build(_):\n    json.loads('')\n", 5), ("def build(:\n", 1)],
)
def test_a_data_set_that_cannot_be_opened_is_named_with_the_line_of_the_user(tmp_path, text, line):
    own = tmp_path / "mine.py"
    own.write_text(text)
    with pytest.raises(DataError, match=rf"opening data set .*Error: .*\(mine\.py, line {line}\);"):
        DataOptions(f"{own}:build").open()


def test_a_data_set_of_the_users_own(plan, workspace, tmp_path):
    own = replace(plan, data=DataOptions(f"{SMALL}:Levels"), methods={"dasp": MethodRow("dasp")})
    for result in run_plan(own, workspace, show=False)["dasp"]:
        assert result.run.data == {"name": "levels", "samples": 5, "version": 1}
        assert result.counts.seen == 10
    nameless = tmp_path / "nameless.py"
    nameless.write_text(
        "class Data:\n    identity = {'name': 'x'}\ndef build(_):\n    return Data()"
    )
    with pytest.raises(ContractError, match="lacks 'name' or 'samples'"):
        DataOptions(f"{nameless}:build").open()
