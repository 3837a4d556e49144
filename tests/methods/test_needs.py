"""What a method needs of a model: found by itself, or said at once, before the first batch."""

import pytest
import torch
from torch import nn

import dasp
from dasp.core.errors import ContractError, OptionError
from dasp.methods.attention_maps import find_spans, fuse_with_found_attention, why_no_maps
from dasp.methods.needs import lacking
from dasp.models import Toy


class Torch(nn.MultiheadAttention):
    def __init__(self):
        super().__init__(8, 2, batch_first=True)

    def forward(self, value):
        return super().forward(value, value, value)[0]


class Timm(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.proj = nn.Linear(8, 24), nn.Linear(8, 8)

    def forward(self, value):
        return self.proj(nn.functional.scaled_dot_product_attention(*self.qkv(value).chunk(3, -1)))


class HuggingFace(nn.Module):
    names = ("query", "key", "value")

    def __init__(self):
        super().__init__()
        for name in self.names:
            setattr(self, name, nn.Linear(8, 8))

    def forward(self, value):
        maps = [getattr(self, name)(value) for name in self.names]
        return nn.functional.scaled_dot_product_attention(*maps)


class Llama(HuggingFace):
    names = ("q_proj", "k_proj", "v_proj")


def layer():
    return nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)


KINDS = {
    Torch: {"in_proj_weight", "in_proj_bias"},
    layer: {"self_attn.in_proj_weight", "self_attn.in_proj_bias"},
    Timm: {"qkv.weight", "qkv.bias"},
    HuggingFace: {f"{n}.{p}" for n in HuggingFace.names for p in ("weight", "bias")},
    Llama: {f"{n}.{p}" for n in Llama.names for p in ("weight", "bias")},
}


class Mine(nn.Module):
    """Encoders and a fusion that both have attention of some kind."""

    modalities, embed_dim, num_classes = ("audio", "video"), 8, 3

    def __init__(self, attention):
        super().__init__()
        self.own, self.mix, self.head = attention(), attention(), nn.Linear(8, 3)

    def encode(self, inputs):
        return {name: self.own(value[..., :8]) for name, value in inputs.items()}

    def fuse(self, tokens):
        embedding = self.mix(torch.cat(list(tokens.values()), dim=1)).mean(dim=1)
        return dasp.Fused(embedding, self.head(embedding))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("frozen", [False, True])
def test_the_fusions_maps_are_found_and_not_the_encoders(kind, frozen, batches):
    model = Mine(kind).requires_grad_(not frozen)
    tta = dasp.adapt(model, "read", lr=1e-2)
    assert set(tta.trainable.shapes) == {f"model.mix.{name}" for name in KINDS[kind]}
    assert not model.mix._forward_pre_hooks
    before = {n: p.clone() for n, p in model.named_parameters()}
    assert tta(batches[0]).updated
    moved = {n for n, p in model.named_parameters() if not torch.equal(p, before[n])}
    assert moved
    assert moved <= {f"mix.{name}" for name in KINDS[kind]}


def test_why_no_maps_are_found_is_said():
    with pytest.raises(ContractError, match=r"Read cannot adapt .*no attention of a known kind"):
        dasp.adapt(Mine(nn.Identity), "read")
    outside = Mine(Timm)
    outside.mix = nn.Identity()
    with pytest.raises(ContractError, match=r"fuse\(\) runs no attention of a known kind"):
        dasp.adapt(outside, "read")
    fixed = Mine(Timm)
    fixed.mix = nn.Sequential(nn.Flatten(1), nn.Linear(96, 8), nn.Unflatten(1, (1, 8)))
    with pytest.raises(ContractError, match=r"fuse\(\) could not be tried on a few tokens"):
        dasp.adapt(fixed, "read")


def test_everything_that_is_lacking_is_said_at_once():
    model = Mine(nn.Identity)
    model.modalities = ("audio", "video", "depth")
    with pytest.raises(ContractError) as caught:
        dasp.adapt(model, "sumi")
    said = str(caught.value)
    for part in ("two modalities", "no norm layer", "fuse_own_norm()", "stream_length=100"):
        assert part in said
    assert "can return fuse(tokens)" in said  # what to do without own norms
    with pytest.raises(ContractError) as caught:
        dasp.adapt(model, "brimpr")
    for part in ("two modalities", "encode_prompted()", "fuse_own_norm()", "tta.fit([inputs])"):
        assert part in str(caught.value)
    with pytest.raises(ContractError, match=r"no fusion_qkv\(\).*no fuse_with_attention\(\)"):
        dasp.adapt(model, "abpem")


def test_a_model_with_everything_lacks_nothing():
    assert [n for n in dasp.METHODS if lacking(dasp.METHODS[n], Toy(depth=1))] == []


@pytest.mark.parametrize("method", dasp.METHODS)
def test_a_toy_passes_the_check_for_every_method(method, batches):
    dasp.check_model(Toy(depth=1), batches[0], method=method)


def broken(**parts):
    return type("Broken", (Toy,), parts)(depth=1)


def without_attention(self, tokens):
    return Toy.fuse(self, tokens)


def before_softmax(self, tokens):
    fused = Toy.fuse_with_attention(self, tokens)
    attention = dasp.Attention(2 * fused.attention.weights, fused.attention.spans)
    return dasp.Fused(fused.embedding, fused.logits, attention)


@pytest.mark.parametrize(
    ("model", "method", "said"),
    [
        (broken(fuse_with_attention=without_attention), "abpem", r"attention is NoneType"),
        (broken(fuse_with_attention=before_softmax), "pta", r"after the softmax"),
        (broken(fusion_qkv=lambda _: []), "read", r"fusion_qkv\(\) must return a list of param"),
        (broken(fuse_own_norm=lambda *_: None), "sumi", r"fuse_own_norm\(\) of 'audio'.*'video'"),
        (Toy(), "brimpr", r"encoder_depth\(\) of audio and video is below 1"),
        (Mine(nn.Identity), "abpem", r"no fusion_qkv\(\).*no fuse_with_attention\(\)"),
    ],
)
def test_optional_parts_are_tried(model, method, said, batches):
    dasp.check_model(model, batches[0])
    with pytest.raises(ContractError, match=said):
        dasp.check_model(model, batches[0], method=method)


def test_a_fusion_without_maps_is_told_so_at_the_first_batch(batches):
    tta = dasp.adapt(broken(fuse_with_attention=without_attention), "abpem")
    with pytest.raises(ContractError, match=r"must return Fused\(…, attention=dasp\.Attention"):
        tta(batches[0])


@pytest.mark.parametrize("task", ["multilabel", "regression"])
def test_heads_without_a_softmax_are_refused(task, batches):
    model = Toy()
    model.task = task
    for method in dasp.METHODS:
        with pytest.raises(ContractError, match=rf"task='{task}': every loss here is of a softmax"):
            dasp.adapt(model, method)
    with pytest.raises(ContractError, match="softmax"):
        dasp.check_model(model, batches[0])
    model.task = "classification"
    assert dasp.adapt(model, "tent")(batches[0]).updated


def test_a_single_output_is_refused_and_two_logits_are_the_remedy(batches):
    with pytest.raises(ContractError, match=r"num_classes=1.*return the logits \(0, x\)"):
        dasp.adapt(Toy(num_classes=1), "tent")
    assert dasp.adapt(Toy(num_classes=2), "tent")(batches[0]).updated


def test_an_option_is_named_before_what_the_model_lacks():
    with pytest.raises(OptionError, match="did you mean 'top'"):
        dasp.adapt(Mine(nn.Identity), "abpem", tup=3)


def manual(query, key, value):
    scores = query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5
    return scores.softmax(dim=-1) @ value


class Eager(Timm):
    """Attention written out, with a token of its own in front."""

    def __init__(self):
        super().__init__()
        self.first = nn.Parameter(torch.randn(1, 1, 8))

    def forward(self, value):
        whole = torch.cat([self.first.expand(len(value), 1, 8), value], dim=1)
        return self.proj(manual(*self.qkv(whole).chunk(3, -1)))


@torch.no_grad()
def foresee(model, batch):
    """Shift the head so that a quarter of the batch is predicted as class 1, the rest as class 0.

    PTA learns nothing from a batch in which all predicted classes are equally frequent.
    """
    logits = model.fuse(model.encode(batch)).logits
    gaps = (logits[:, 0] - logits[:, 1]).sort().values
    quarter = len(gaps) // 4
    model.head.bias[1] += gaps[quarter - 1 : quarter + 1].mean()
    model.head.bias[2] -= 20
    predicted = model.fuse(model.encode(batch)).logits.argmax(dim=1)
    assert predicted.bincount(minlength=3).tolist() == [len(gaps) - quarter, quarter, 0]


@pytest.mark.parametrize("kind", [*KINDS, Eager])
@pytest.mark.parametrize("method", ["abpem", "pta"])
def test_attention_maps_are_found(kind, method, batches):
    torch.manual_seed(0)
    model = Mine(kind).eval()
    foresee(model, batches[0])
    dasp.check_model(model, batches[0], method=method)
    tta = dasp.adapt(model, method, lr=1e-2)
    tokens = model.encode(batches[0])
    logits, attention = tta.method.fuse_with_attention(tokens)
    assert torch.allclose(logits, model.fuse(tokens).logits, atol=1e-5)
    assert torch.allclose(attention.weights.sum(dim=3), torch.ones(()), atol=1e-5)
    count, first = tokens["audio"].shape[1], int(kind is Eager)
    assert attention.spans["audio"] == slice(first, first + count)
    assert attention.spans["video"].start == first + count
    assert attention.weights.requires_grad
    assert tta(batches[0]).updated


def test_found_maps_are_those_that_the_model_would_return(batches):
    whole = Toy(depth=1)
    tokens = whole.encode(batches[0])
    told = whole.fuse_with_attention(tokens).attention
    spans = find_spans(whole, tokens)
    found = fuse_with_found_attention(whole, tokens, spans).attention
    assert spans == dict(told.spans)
    assert torch.allclose(found.weights, told.weights, atol=1e-6)


class Crossed(Mine):
    """Each modality asks the other: no attention sees the tokens of both."""

    def fuse(self, tokens):
        one, two = (tokens.get(name, next(iter(tokens.values()))) for name in self.modalities)
        embedding = manual(one, two, two).mean(dim=1)
        return dasp.Fused(embedding, self.head(embedding))


def test_why_no_maps_can_be_found_is_said():
    assert "no self-attention over two or more tokens" in why_no_maps(Crossed(nn.Identity))
    with pytest.raises(ContractError, match=r"fuse_with_attention\(\).*none were found either"):
        dasp.adapt(Crossed(Timm), "pta")


def test_a_learning_rate_by_its_long_name_is_led_to_the_short_one():
    with pytest.raises(OptionError, match=r"called lr: lr=0\.01"):
        dasp.adapt(Toy(), "triage", learning_rate=0.01)
