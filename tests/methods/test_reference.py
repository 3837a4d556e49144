"""Agreement with the figures of the released implementations, through the public names alone.

How a file of figures is compared is in its metadata (tests/reference/README.md), so that a new
method needs no edit here.
"""

import json
from functools import reduce
from pathlib import Path

import pytest
import torch
from safetensors import safe_open

import dasp

REFERENCE = Path(__file__).parents[1] / "reference"


def settings(name):
    with safe_open(REFERENCE / f"{name}.safetensors", framework="pt") as file:
        return json.loads((file.metadata() or {}).get("settings", "{}"))


RUNS = [
    (name, run)
    for name in dasp.METHODS
    if (REFERENCE / f"{name}.safetensors").is_file()
    for run in settings(name).get("runs", {"": {}})
]


def start(name, run, model, batches, lr, figures):
    """Adapt with the options of a run, fitted; the first run has initial values to set."""
    given = settings(name)
    options = {"lr": lr} | given.get("runs", {}).get(run, {})
    tta = dasp.adapt(model, name, **options)
    for path, key in given.get("set", {}).items() if not run else ():
        reduce(getattr, path.split("."), tta.method).data.copy_(figures[key])
    if "fit" in given:
        tta.fit([batches[i] for i in given["fit"]])
    return tta


def answers(tta, batch, number, absent):
    """Return the logits of a batch, sample by sample if some samples lack a modality."""
    if not absent:
        return tta(batch).logits
    size, rows = len(batch["audio"]), []
    for i in range(size):
        place = (number * size + i) % absent["of"]
        names = [name for name in batch if absent[name] != place]
        rows.append(tta({name: batch[name][i : i + 1] for name in names}).logits)
    return torch.cat(rows)


@pytest.mark.parametrize(("name", "run"), RUNS)
def test_agreement(name, run, reference_model, reference_batches, reference_config, figures):
    expected, given = figures(name), settings(name)
    lr, width = reference_config["lr"], reference_config["embed_dim"]
    tta = start(name, run, reference_model, reference_batches, lr, expected)
    tolerance = {"atol": 2e-5, "rtol": 0} | given.get("tolerance", {})
    for i, batch in enumerate(reference_batches):
        found = answers(tta, batch, i, given.get("absent"))
        torch.testing.assert_close(found, expected[f"{run}logits{i}"], **tolerance)
    tensors = tta.state()["tensors"]
    for key, path in given.get("final", {}).items() if not run else ():
        found, value = tensors[path], expected[key].clone()
        found = found if value.shape == found.shape else found[-len(value) :]  # v of qkv
        if path.endswith("qkv.bias"):  # softmax is blind to the keys': rounding noise
            found[width : 2 * width] = value[width : 2 * width] = 0
        torch.testing.assert_close(found, value, atol=1e-5, rtol=0)
    if f"{run}final_l2" in expected:
        weights = [value for key, value in tensors.items() if key.startswith("weight/")]
        if given.get("final_l2") == "model":
            weights = [value.detach() for value in tta.model.parameters()]
        norm = torch.cat([value.flatten() for value in weights]).norm()
        tolerance = 1e-3 if any("qkv.bias" in key for key in tensors) else 1e-4
        assert float(norm) == pytest.approx(float(expected[f"{run}final_l2"]), abs=tolerance)


def test_dasp_diagnosis(reference_model, reference_batches, reference_config, figures):
    expected, lr = figures("dasp"), reference_config["lr"]
    tta = start("dasp", "", reference_model, reference_batches, lr, expected)
    outcomes = [tta(batch) for batch in reference_batches]
    for i, outcome in enumerate(outcomes):
        for j, name in enumerate(("audio", "video")):
            score = outcome.diagnosis.scores[name]
            assert score == pytest.approx(float(expected[f"redundancy{i}"][j]), abs=1e-6)
    flagged = [set(outcome.diagnosis.biased) for outcome in outcomes]
    audio, video = {"audio"}, {"video"}
    assert flagged == [audio, audio, video, audio, audio, audio, video, set()]
    assert [outcome.updated for outcome in outcomes] == [True] * 7 + [False]


@pytest.mark.parametrize("name", ["read", "abpem", "pta", "tsa", "dasp"])
def test_tokens_encoded_in_advance_give_the_same(name, reference_model, reference_batches, figures):
    tta = dasp.adapt(reference_model, name, lr=2e-3)
    direct = [tta(batch).logits for batch in reference_batches]
    tta.reset()
    with torch.no_grad():
        tokens = [reference_model.encode(batch) for batch in reference_batches]
    for batch, logits in zip(tokens, direct, strict=True):
        assert torch.equal(tta.on_tokens(batch).logits, logits)
