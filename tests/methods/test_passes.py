"""DASP's passes in pieces, and the fusion that models may prepare for them."""

from itertools import combinations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import dasp
from dasp.core.errors import ContractError
from dasp.methods import passes
from dasp.models import CavMae, CavMaeDepth, Toy

SIZES = {"embed_dim": 16, "num_heads": 2, "depth": 1, "audio_length": 32, "image_size": 32}


def tokens_of(samples, names=("audio", "video"), dim=16, seed=0, kind=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    lengths = {"audio": 16, "video": 4, "depth": 16}
    return {n: torch.randn(samples, lengths[n], dim, generator=generator).to(kind) for n in names}


@given(samples=st.integers(1, 40), numbers=st.integers(1, 30_000))
def test_pieces_are_a_batch_in_order_and_small_enough(samples, numbers):
    batch = tokens_of(samples)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(passes, "AT_ONCE", numbers)
        found = list(passes.pieces(batch))
    one = sum(tokens[0].numel() for tokens in batch.values())
    assert all(torch.equal(torch.cat([p[n] for _, p in found]), batch[n]) for n in batch)
    assert all(len(piece["audio"]) * one <= max(numbers, one) for _, piece in found)
    assert [rows.start for rows, _ in found] == [0] + [rows.stop for rows, _ in found[:-1]]


@pytest.mark.parametrize("make", [CavMae, CavMaeDepth])
@pytest.mark.parametrize("fusion_depth", [1, 2])
def test_a_prepared_fusion_is_the_fusion(make, fusion_depth):
    torch.manual_seed(0)
    model = make(**SIZES, fusion_depth=fusion_depth, num_classes=5)
    tokens = tokens_of(3, model.modalities)
    prepared = model.prepare_fusion(tokens)
    for size in range(1, len(tokens) + 1):
        for names in combinations(model.modalities, size):
            whole = model.fuse({name: tokens[name] for name in names})
            parts = model.fuse_prepared(prepared, names)
            torch.testing.assert_close(parts.logits, whole.logits, rtol=1e-5, atol=1e-6)
            torch.testing.assert_close(parts.embedding, whole.embedding, rtol=1e-5, atol=1e-6)


def test_what_was_prepared_is_kept_once():
    prepared = CavMae(**SIZES, num_classes=5).prepare_fusion(tokens_of(3))
    for names in (["audio"], ["video"], ["audio", "video"]):
        for part, whole in zip(prepared.of(names), (prepared.x, prepared.qkv), strict=True):
            assert part.untyped_storage().data_ptr() == whole.untyped_storage().data_ptr()


@pytest.mark.parametrize("variant", ["released", "paper"])
@pytest.mark.parametrize("build", [CavMae, Toy])
def test_batches_in_pieces_teach_what_whole_ones_teach(variant, build, monkeypatch):
    def run(at_once):
        monkeypatch.setattr(passes, "AT_ONCE", at_once)
        torch.manual_seed(0)
        model = CavMae(**SIZES, num_classes=5) if build is CavMae else Toy(seed=1)
        tta = dasp.adapt(model.double(), "dasp", delta=1e-9, lr=1e-2, variant=variant)
        shape = {"dim": model.embed_dim, "kind": torch.float64}
        outcomes = [tta.on_tokens(tokens_of(11, seed=s, **shape)) for s in range(4)]
        with tta.frozen():
            outcomes.append(tta.on_tokens(tokens_of(7, seed=9, **shape)))
        return tta, outcomes

    (whole, said), (parts, found) = run(2**22), run(900)
    assert any(outcome.updated for outcome in said)
    for one, other in zip(said, found, strict=True):
        torch.testing.assert_close(other.logits, one.logits, rtol=1e-8, atol=1e-9)
        assert (one.diagnosis.biased, one.updated) == (other.diagnosis.biased, other.updated)
        if one.loss is not None:
            assert other.loss == pytest.approx(one.loss, rel=1e-8)
    for name, weight in whole.memory.weights.items():
        torch.testing.assert_close(parts.memory.weights[name], weight, rtol=1e-6, atol=1e-8)


class Popping(CavMae):
    def prepare_fusion(self, tokens):
        return dict(tokens)

    def fuse_prepared(self, prepared, modalities):
        return self.fuse({name: prepared.pop(name) for name in modalities})


class Changing(Popping):
    def fuse_prepared(self, prepared, modalities):
        fused = self.fuse({name: prepared[name] for name in modalities})
        prepared[modalities[0]] = prepared[modalities[0]] * 2
        return fused


class WantsAll(CavMae):
    def prepare_fusion(self, tokens):
        return super().prepare_fusion({name: tokens[name] for name in self.modalities})


class Pair(CavMae):
    def fuse_prepared(self, prepared, modalities):
        fused = super().fuse_prepared(prepared, modalities)
        return fused.embedding, fused.logits


class Wrong(CavMae):
    def fuse_prepared(self, prepared, modalities):
        fused = super().fuse_prepared(prepared, modalities)
        return dasp.Fused(fused.embedding, fused.logits + 1)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (Popping, "KeyError.*several times"),
        (Changing, "embedding of fuse_prepared.*must not change"),
        (WantsAll, r"failed on \('audio',\).*any non-empty subset"),
        (Pair, "must return the same as fuse"),
        (Wrong, "logits of fuse_prepared.*differs"),
    ],
)
def test_a_prepared_fusion_that_a_step_could_not_use_is_refused(make, said):
    inputs = {"audio": torch.zeros(2, 32, 128), "video": torch.zeros(2, 3, 32, 32)}
    with pytest.raises(ContractError, match=said):
        dasp.check_model(make(**SIZES, num_classes=5), inputs)
    dasp.check_model(CavMae(**SIZES, num_classes=5), inputs)
