"""The same bench on clips on disk in READ's layout, through the command."""

import json
from dataclasses import replace
from html import escape
from pathlib import Path

import pytest
import torch

from dasp.bench.material import Clips
from dasp.bench.plan_files import load_plans
from dasp.bench.results import read_result
from dasp.cli import main
from dasp.data import open_manifest, prepare_tree
from dasp.data.read_list import read_entries, write_list
from dasp.data.sets import SPECS
from dasp.models import CavMae, save_weights


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


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("weights") / "tiny.safetensors"
    save_weights(CavMae(embed_dim=16, num_heads=2, depth=1, num_classes=2), path)
    return path


def run(kinetics, weights, tmp_path, *more):
    words = ["bench", "--data", "kinetics50", "--root", str(kinetics), "--weights", str(weights)]
    words += ["--methods", "source", "dasp", "--protocol", "interleaved", "--batch-size", "4"]
    words += ["--corruptions", "fog", "rain", "--results", str(tmp_path / "results")]
    words += ["--store", str(tmp_path / "store"), "--workers", "1", *more]
    return main(words)


def test_the_plan_runs_and_reports(kinetics, weights, tmp_path, capsys):
    assert run(kinetics, weights, tmp_path) == 0
    out = capsys.readouterr().out
    assert "report.html" in out
    assert (tmp_path / "results" / "report.html").stat().st_size > 10_000
    contents = [read_result(path) for path in (tmp_path / "results").glob("*.json")]
    assert {content["cell"]["label"] for content in contents} == {"source", "dasp"}
    for content in contents:
        assert content["cell"]["data"]["name"] == "kinetics50"
        assert content["cell"]["data"]["noise"] == "synthesised"
        assert content["result"]["seen"] == 12


def test_a_broken_clip_is_named_or_left_out_and_listed(kinetics, weights, tmp_path, capsys):
    broken = Path(kinetics) / SPECS["kinetics50"].audio_dir / "bark1.wav"
    whole = broken.read_bytes()
    broken.write_bytes(b"")
    try:
        assert run(kinetics, weights, tmp_path) == 2
        assert "bark1.wav" in capsys.readouterr().err
        assert run(kinetics, weights, tmp_path, "--on-bad", "skip") == 0
    finally:
        broken.write_bytes(whole)
    for path in (tmp_path / "results").glob("*.json"):
        result = read_result(path)["result"]
        assert result["seen"] == 10
        assert [entry["id"] for entry in result["skipped"]] == ["bark1"]


@pytest.fixture
def training_list(kinetics):
    """A list of training clips of its own, beside that of the test clips."""
    spec = SPECS["kinetics50"]
    entries = [
        {**entry, "wav": f"{spec.audio_dir}/{entry['video_id']}.wav", "video_path": spec.video_dir}
        for entry in read_entries(kinetics / spec.list_file)
    ]
    path = kinetics / "train.json"
    write_list(path, entries[::2])
    yield path
    path.unlink()


def test_source_clips_are_asked_for_and_taken(kinetics, weights, tmp_path, capsys, training_list):
    words = ("--methods", "brimpr", "sumi")
    assert run(kinetics, weights, tmp_path, *words) == 2
    message = " ".join(capsys.readouterr().err.split())
    assert "name their list at the root by --source-split (train for train.json)" in message
    assert run(kinetics, weights, tmp_path, *words, "--source-split", "learn") == 2
    assert "learn.json" in capsys.readouterr().err
    assert run(kinetics, weights, tmp_path, *words, "--source-split", "train") == 0
    contents = [read_result(path) for path in (tmp_path / "results").glob("*.json")]
    found = {content["cell"]["label"]: content["cell"] for content in contents}
    assert found["brimpr"]["source"]["samples"] == 3
    assert found["brimpr"]["data"] == found["sumi"]["data"]
    assert found["sumi"]["source"] == {}


def test_source_clips_are_drawn_from_the_whole_list(kinetics, training_list):
    manifest = open_manifest(kinetics, "kinetics50")
    many = replace(manifest, clips=tuple(replace(manifest.clips[0], id=str(i)) for i in range(500)))
    clips = Clips(manifest, training=many)
    drawn = [int(clip.id) for clip in clips.source().manifest.clips]
    assert len(set(drawn)) == 32
    assert drawn == sorted(drawn)
    assert max(drawn) > 250
    assert [int(clip.id) for clip in clips.source().manifest.clips] == drawn


def test_wrong_words_are_refused_with_the_nearest(capsys, tmp_path):
    for words, message in {
        ("bench", "--set", "dasp.detla=1"): "did you mean 'delta'",
        ("bench", "--methods", "dapss"): "did you mean 'dasp'",
        ("bench", "--protocol", "interleave"): "did you mean 'interleaved'",
        ("bench", "--data", "kinetics50"): "--weights",
        ("bench", "paper", "--severity", "3"): "name it, such as `dasp bench paper/",
        ("bench", "--batch-size", "0"): "batch size 0 must be",
        ("bench", "--samples", "0"): "at least 1, not 0",
        ("bench", "quik"): "did you mean 'quick'",
        ("bench", "--severity", "6"): "severity",
    }.items():
        assert main([*words, "--results", str(tmp_path)]) == 2
        assert message in capsys.readouterr().err


def test_a_dry_run_says_what_would_be_run(capsys, tmp_path):
    words = ["bench", "--methods", "source", "dasp", "--samples", "8", "--dry-run"]
    assert main([*words, "--results", str(tmp_path)]) == 0
    assert "10 runs: source, dasp" in capsys.readouterr().out
    assert not list(tmp_path.iterdir())


def test_every_plan_of_the_paper_runs_on_clips(kinetics, weights, tmp_path, capsys, training_list):
    names = [name for name in load_plans("paper") if name != "efficiency"]
    listed = tmp_path / "most.toml"
    listed.write_text(f"plans = {[f'paper/{name}' for name in names]}\n")
    results = tmp_path / "results"
    words = ["bench", str(listed), "--data", "kinetics50", "--root", str(kinetics)]
    words += ["--weights", str(weights), "--source-split", "train", "--samples", "4"]
    words += ["--corruptions", "gaussian_noise", "--results", str(results)]
    words += ["--store", str(tmp_path / "store"), "--workers", "0"]
    assert main(words) == 0
    assert "report.html" in capsys.readouterr().out
    page = (results / "report.html").read_text()
    for name, plan in load_plans(listed).items():
        record = json.loads(next((results / "plans").glob(f"*-{name}.json")).read_text())
        assert all((results / file).exists() for file in record["files"])
        assert escape(plan.title) in page
    cells = [json.loads(path.read_text())["cell"] for path in results.glob("*.json")]
    assert {cell["data"]["name"] for cell in cells} == {"kinetics50"}
    rates = {cell["options"]["lr"] for cell in cells if "options" in cell}
    assert rates == {1e-4}  # the published one, not those tuned for the built-in set


def test_the_plan_of_costs_runs_on_clips(kinetics, weights, tmp_path):
    words = ["--methods", "source", "dasp", "--corruptions", "gaussian_noise", "--samples", "4"]
    place = ["--results", str(tmp_path / "results"), "--store", str(tmp_path / "store")]
    data = ["--data", "kinetics50", "--root", str(kinetics), "--weights", str(weights)]
    assert main(["bench", "paper/efficiency", *data, *words, *place]) == 0
    assert (tmp_path / "results" / "tables").is_dir()
