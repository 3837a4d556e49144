"""The study of the diagnosis, on views of a made-up model small enough to run here."""

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "studies/diagnosis"))
trust = pytest.importorskip("trust")


@pytest.fixture(scope="module")
def scores(tmp_path_factory):
    folder = tmp_path_factory.mktemp("views") / "late_made_up"
    made_up_views(folder)
    return trust.measured(folder, 64, 0)


def made_up_views(folder):
    """Write views whose damaged modality has other tokens and unsure predictions."""
    folder.mkdir()
    draws = np.random.default_rng(0)
    patterns = {name: draws.normal(size=(4, 16)) for name in ("audio", "video")}

    def samples(labels, name, damaged=False):
        mean = patterns[name][labels] + 0.3 * draws.normal(size=(len(labels), 16))
        logits = 6 * np.eye(4)[labels] + draws.normal(size=(len(labels), 4))
        if damaged:
            mean, logits = mean + np.linspace(-1, 1, 16), 0.3 * logits
        steps = draws.normal(size=(len(labels), 16, 16))
        summary = np.concatenate([mean[:, None], steps], axis=1)
        found = {"summary": summary, "embedding": mean, "logits": logits}
        return {f"{name}.{key}": value.astype(np.float32) for key, value in found.items()}

    for file, count in (("fit", 64), ("clean", 256)):
        labels = draws.integers(4, size=count)
        both = samples(labels, "audio") | samples(labels, "video")
        np.savez(folder / f"{file}.npz", labels=labels, right=np.ones(count, bool), **both)
    right = draws.random(256) < 0.7
    for name in ("audio", "video"):
        own = samples(labels, name, damaged=True)
        np.savez(folder / f"{name}-noise-5.npz", right=right, **own)


def test_a_damage_is_named_and_clean_batches_are_not(scores):
    (row,) = trust.diagnosis_table(scores).to_dict("records")
    assert (row["set"], row["domains"]) == ("late", 2)
    assert row["right, shuffled"].startswith("100.0")
    assert row["clean flagged, one class"] == "0.0"
    assert trust.missed_table(scores).empty
    assert trust.markdown(trust.missed_table(scores)).startswith("| model |")


def test_two_damages_are_both_named(scores):
    (row,) = trust.pairs_table(scores).to_dict("records")
    assert (row["set"], row["pairs"], row["a third one flagged"]) == ("late", 1, "0.0")
    assert row["right, shuffled"].startswith("100.0")


def test_a_pair_is_right_only_if_both_are_flagged(scores):
    domain = "audio-noise-5+video-noise-5"
    video = (scores.domain == domain) & (scores.modality == "video")
    missed = scores.assign(score=scores.score.where(~video, 0.5))
    (row,) = trust.pairs_table(missed).to_dict("records")
    assert row["right, shuffled"].startswith("0.0")


def test_a_probability_that_is_always_right_has_no_calibration_error(scores, tmp_path):
    table = trust.calibration(scores)
    assert table.weight.sum() == pytest.approx(1)
    assert trust.expected_error(table) < 0.2
    trust.draw_calibration(table, tmp_path / "figure.svg")
    assert (tmp_path / "figure.svg").stat().st_size > 1000
    perfect = table.assign(damaged=table.probability)
    assert trust.expected_error(perfect) == 0


@pytest.mark.parametrize("mix", trust.MIXES)
def test_batches_have_different_samples_and_the_mix_that_is_asked_for(mix):
    labels = np.repeat(np.arange(5), 80)
    for batch in trust.batches(labels, mix, 7, np.random.default_rng(0)):
        assert len(set(batch)) == len(batch) <= trust.BATCH
        if mix == "one class":
            assert len(set(labels[batch])) == 1


def test_a_change_is_named_and_forgotten_within_a_few_samples(tmp_path, monkeypatch, capsys):
    delays = pytest.importorskip("delays")
    folder = tmp_path / "late_made_up"
    made_up_views(folder)
    monkeypatch.setattr(sys, "argv", ["delays.py", "--views", str(tmp_path), "--fit", "64"])
    delays.main()
    last = capsys.readouterr().out.strip().splitlines()[-1]
    assert last.startswith("| late | 2 |")
    assert last.count("100%") == 4
