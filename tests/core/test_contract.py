import pytest
import torch
from torch import nn

import dasp
from dasp.core.errors import ContractError, InputError
from dasp.methods.model_check import check_model
from dasp.models import Toy


class PlainFusion(nn.Module):
    """A model that fulfils the contract and nothing more: no attention, no norms."""

    modalities, embed_dim, num_classes = ("audio", "video"), 8, 3

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(8, 3)

    def encode(self, inputs):
        return {name: value[..., :8] for name, value in inputs.items()}

    def fuse(self, tokens):
        embedding = torch.cat(list(tokens.values()), dim=1).mean(dim=1)
        return dasp.Fused(embedding, self.head(embedding))


def test_missing_parts_are_named():
    class Bare(nn.Module):
        modalities = ("audio", "video")

    with pytest.raises(ContractError, match=r"Bare cannot.*embed_dim.*num_classes.*encode.*fuse"):
        dasp.adapt(Bare(), "source")
    model = PlainFusion()
    model.fuse = None
    with pytest.raises(ContractError, match=r"PlainFusion cannot be adapted: it has no fuse"):
        check_model(model, {})


@pytest.mark.parametrize("names", ["audio", (), ("audio", "audio")])
def test_odd_modalities_are_refused(names):
    model = Toy()
    model.modalities = names
    with pytest.raises(ContractError, match="modalities"):
        dasp.adapt(model, "source")


class Hidden(PlainFusion):
    def fusion_qkv(self):
        return [self.head.weight]


@pytest.mark.parametrize(
    ("build", "method", "missing"),
    [
        (PlainFusion, "read", "fusion_qkv"),
        (PlainFusion, "pta", "fusion_qkv"),
        (Hidden, "abpem", r"cannot adapt Hidden: the model has no fuse_with_attention\(\)"),
        (PlainFusion, "tent", "no norm layer.*LayerNorm, BatchNorm"),
        (PlainFusion, "sumi", r"no fuse_own_norm\(\)"),
        (PlainFusion, "brimpr", r"no encoder_depth\(\), embed\(\), encode_prompted\(\)"),
    ],
)
def test_a_methods_need_is_named_when_it_is_built(build, method, missing):
    with pytest.raises(ContractError, match=missing):
        dasp.adapt(build(), method)


@pytest.mark.parametrize("method", ["source", "dasp", "tsa"])
def test_the_bare_contract_suffices(method, batches):
    check_model(PlainFusion(), batches[0])
    assert dasp.adapt(PlainFusion(), method)(batches[1]).logits.shape == (16, 3)


def test_a_model_that_cannot_take_a_subset_is_told_so(batches):
    class NoSubset(Toy):
        def fuse(self, tokens):
            return super().fuse({name: tokens[name] for name in self.modalities})

    model = NoSubset()
    with pytest.raises(ContractError, match=r"failed on \('audio',\) alone.*any non-empty subset"):
        check_model(model, batches[0])
    tta = dasp.adapt(model, "dasp")
    before = tta.memory.capture()
    with pytest.raises(ContractError, match="any non-empty subset"):
        tta(batches[0])
    assert tta.memory.capture().batch_index == before.batch_index == 0
    assert dasp.adapt(model, "source")(batches[0]).logits.shape == (16, 8)


class WrongLogits(Toy):
    def fuse(self, tokens):
        fused = super().fuse(tokens)
        return dasp.Fused(fused.embedding, fused.logits[:, 1:])


class Pair(Toy):
    def fuse(self, tokens):
        return (1, 2)


class Flat(Toy):
    def encode(self, inputs):
        return {name: value.mean(dim=1) for name, value in super().encode(inputs).items()}


class TooWide(PlainFusion):
    embed_dim = 9


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (WrongLogits, r"logits \(16, 7\), expected \(16, 8\)"),
        (Pair, "must return dasp"),
        (Flat, r"encode\(\) returned \(16, 32\)"),
        (TooWide, r"encode\(\) returned \(16, 4, 8\)"),
    ],
)
def test_what_encode_and_fuse_return_is_checked(build, message, batches):
    with pytest.raises(ContractError, match=message):
        check_model(build(), batches[0])
    with pytest.raises(ContractError, match=message):
        dasp.adapt(build(), "dasp")(batches[0])


def test_a_failing_encoder_is_named_with_its_input(batches):
    class Picky(PlainFusion):
        def encode(self, inputs):
            return {name: value @ torch.zeros(12, 8) for name, value in inputs.items()}

    tta = dasp.adapt(Picky(), "source")
    with pytest.raises(InputError, match=r"'audio' \(16, 4, 5\) torch.float32.*RuntimeError"):
        tta({**batches[0], "audio": batches[0]["audio"][..., :5]})


BAD = {
    "wrong name": (lambda b: {"sound": b["audio"]}, "unknown modality 'sound'"),
    "near name": (lambda b: {**b, "vidoe": b["video"]}, "did you mean 'video'"),
    "all missing": (lambda b: {}, "lack audio, video"),
    "nothing": (lambda b: {**b, "audio": None}, "omit it if it is missing"),
    "no dict": (lambda b: b["audio"], "must be a dict"),
    "no tensor": (lambda b: {**b, "audio": [1, 2]}, "must be a tensor"),
    "empty batch": (lambda b: {n: v[:0] for n, v in b.items()}, "without empty axes"),
    "sizes differ": (lambda b: {**b, "audio": b["audio"][:3]}, "differ in batch size"),
    "flat": (lambda b: {**b, "audio": b["audio"][:, 0, 0]}, "expected .B, ..."),
    "double": (lambda b: {**b, "audio": b["audio"].double()}, "is torch.float64 and the model is"),
    "model's shape": (lambda b: {**b, "audio": b["audio"][..., :5]}, r"takes \(B, steps, 12\)"),
}


@pytest.mark.parametrize("method", ["source", "tent", "dasp"])
@pytest.mark.parametrize("kind", BAD)
def test_bad_input_is_a_specific_error_and_changes_nothing(method, kind, batches):
    spoil, message = BAD[kind]
    tta, twin = dasp.adapt(Toy(), method, lr=1e-2), dasp.adapt(Toy(), method, lr=1e-2)
    for batch in batches:
        with pytest.raises(InputError, match=message):
            tta(spoil(batch))
        assert torch.equal(tta(batch).logits, twin(batch).logits)


class TwoWidths(nn.Module):
    """Encoders of widths 8 and 5, and an embedding of width 6."""

    modalities, embed_dim, num_classes = ("audio", "video"), {"audio": 8, "video": 5}, 3

    def __init__(self):
        super().__init__()
        self.maps = nn.ModuleDict({n: nn.Linear(w, 6) for n, w in self.embed_dim.items()})
        self.norm, self.head = nn.LayerNorm(6), nn.Linear(6, 3)

    def encode(self, inputs):
        return {name: value[..., : self.embed_dim[name]] for name, value in inputs.items()}

    def fuse(self, tokens):
        embedding = self.norm(sum(self.maps[n](own).mean(dim=1) for n, own in tokens.items()))
        return dasp.Fused(embedding, self.head(embedding))


@pytest.mark.parametrize("method", ["source", "tent", "tsa", "dasp"])
def test_modalities_may_differ_in_width(method, batches):
    inputs = batches[0]
    check_model(TwoWidths(), inputs)
    tta = dasp.adapt(TwoWidths(), method, **({"delta": 0.0} if method == "dasp" else {}))
    out = tta(inputs)
    assert out.logits.shape == (16, 3)
    assert out.updated == (method != "source")
    if not tta.method.tunes_encoder:
        tokens = tta.method.encode(inputs)
        with pytest.raises(InputError, match=r"'video' have shape \(16, 4, 8\).*\(B, N, 5\)"):
            tta.on_tokens({**tokens, "video": tokens["audio"]})


@pytest.mark.parametrize("width", [{"audio": 8}, "wide"])
def test_a_width_that_is_missing_is_named(width):
    model = TwoWidths()
    model.embed_dim = width
    with pytest.raises(ContractError, match="embed_dim must be a width, or one per modality"):
        dasp.adapt(model, "source")
