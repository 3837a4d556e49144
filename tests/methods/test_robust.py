"""The robust variant, put together: fit, healthy label mix, small batches, states, resume."""

import pytest
import torch

import dasp
from dasp.core.errors import ContractError, InputError, OptionError
from dasp.core.types import Fused
from dasp.methods.dasp_loss import diversity, label_mix
from dasp.methods.dasp_variants import VARIANTS
from dasp.models import Toy
from dasp.streams.synthetic import SyntheticWorld


@pytest.fixture
def clean():
    return [SyntheticWorld().draw(64, seed=5).inputs]


def robust(model=None, **options):
    return dasp.adapt(model or Toy(seed=1), "dasp", variant="robust", lr=1e-2, **options)


def test_it_is_the_sum_of_its_options(batches, clean):
    runs = []
    for options in ({"variant": "robust"}, {"variant": "paper"} | VARIANTS["robust"]):
        tta = dasp.adapt(Toy(seed=1), "dasp", lr=1e-2, **options)
        tta.fit(clean)
        runs.append([tta(batch) for batch in batches * 2])
    for one, other in zip(*runs, strict=True):
        assert torch.equal(one.logits, other.logits)
        assert (one.diagnosis, one.loss) == (other.diagnosis, other.loss)


def test_fit_survives_reset_and_state_and_a_stream_goes_on_from_it(batches, clean):
    tta = robust()
    tta.fit(clean)
    assert tta.method.diagnoser.fitted
    first = [tta(batch).logits for batch in batches]
    tta.reset()
    assert tta.method.diagnoser.fitted
    assert all(torch.equal(a, tta(b).logits) for a, b in zip(first, batches, strict=True))
    other = robust()
    other.load_state(tta.state())
    for batch in batches:
        assert torch.equal(tta(batch).logits, other(batch).logits)


def test_published_variants_take_nothing_from_source(clean):
    for variant in ("released", "paper"):
        with pytest.raises(ContractError, match="takes nothing from source data"):
            dasp.adapt(Toy(), "dasp", variant=variant).fit(clean)


def test_fit_without_samples_says_so_and_changes_nothing(clean):
    tta = robust()
    with pytest.raises(ContractError, match="no clean samples of audio, video"):
        tta.fit([])
    assert not tta.method.diagnoser.fitted


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (lambda b: b, "put one batch into a list"),
        (lambda b: None, "not NoneType"),
        (lambda b: [(b, torch.zeros(64))], "not tuple: leave the labels out"),
        (lambda b: [{"audio": b["audio"]}], "lack video"),
        (lambda b: [b | {"sound": b["audio"]}], "unknown modality 'sound'"),
        (lambda b: [b | {"audio": b["audio"] * torch.nan}], "must be finite: NaN or Inf in audio"),
        (lambda b: [{n: v[:1].expand(64, -1, -1) for n, v in b.items()}], "'audio' are alike"),
        (lambda b: [{n: v[:3] for n, v in b.items()}], "3 clean samples are too few"),
    ],
)
def test_clean_samples_that_would_spoil_the_diagnosis_are_refused(source, said, clean, batches):
    tta = robust()
    tta.fit(clean)
    before = [tta(batch).diagnosis for batch in batches]
    tta.reset()
    with pytest.raises(InputError, match=said):
        tta.fit(source(dict(clean[0])))
    assert [tta(batch).diagnosis for batch in batches] == before


def test_the_label_mix_is_that_of_unbiased_modalities_or_of_all():
    sure = {name: torch.eye(3)[[place] * 4] * 50 for place, name in enumerate(("a", "b"))}
    alone = {name: Fused(torch.zeros(4, 2), logits) for name, logits in sure.items()}
    assert label_mix(alone, {"b"}).mean(dim=0).tolist() == pytest.approx([1, 0, 0])
    for biased in ((), ("a", "b")):
        assert label_mix(alone, biased).mean(dim=0).tolist() == pytest.approx([0.5, 0.5, 0])


def test_diversity_towards_a_target_is_a_divergence():
    logits = torch.randn(16, 4, generator=torch.Generator().manual_seed(0))
    even = torch.full((4,), 0.25)
    plain = diversity(logits) + torch.tensor(4.0).log()
    torch.testing.assert_close(diversity(logits, even), plain)
    own = logits.softmax(dim=1).mean(dim=0)
    wanted = 2 * own - even  # half of it and half even is the batch's own mix
    assert float(diversity(logits, wanted)) == pytest.approx(0, abs=1e-6)
    assert float(diversity(logits, torch.eye(4)[0])) > 0


def test_a_small_batch_moves_the_weights_less(batches):
    """Adam's first step has the length of the learning rate."""
    sizes = {}
    for count in (4, 16):
        tta = robust(score="cosine", level="lowest", delta=1e-9, full_batch=16, queue=0)
        outcome = tta({name: value[:count] for name, value in batches[1].items()})
        assert outcome.updated
        moved = [
            (value.detach() - tta.source.tensors[f"weight/{name}"]).abs().max()
            for name, value in tta.memory.weights.items()
        ]
        sizes[count] = float(max(moved))
    assert sizes[4] == pytest.approx(sizes[16] / 2, rel=0.01)


def test_one_modality_left_is_still_predicted_and_diagnosed(batches, clean):
    tta = robust()
    tta.fit(clean)
    tta(batches[0])
    before = tta.state()["tensors"]
    outcome = tta({"video": batches[2]["video"]})
    assert set(outcome.diagnosis.scores) == {"video"}
    after = tta.state()["tensors"]
    assert all(torch.equal(v, after[k]) for k, v in before.items() if "adapters.audio" in k)


@pytest.mark.parametrize(
    ("option", "wrong"),
    [
        ("queue", -1), ("queue", 1.5), ("full_batch", True), ("level", "mine"),
        ("label_mix", ""), ("collapse_guard", 1), ("lambda_kl_biased", -0.1),
        ("false_alarms", 0), ("false_alarms", 1), ("variant", "sturdy"),
    ],
)  # fmt: skip
def test_impossible_options_are_named(option, wrong):
    with pytest.raises(OptionError, match=f"^{option} "):
        dasp.adapt(Toy(), "dasp", **{option: wrong})
