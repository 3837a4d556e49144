import copy
import threading
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from transformers.utils import ModelOutput

import dasp
from dasp.bench.inspection import method_needs
from dasp.bench.references import find_model, model_digest
from dasp.core.contract import token_width
from dasp.core.errors import ContractError, InputError, OptionError, StateError
from dasp.models import Toy, faster


@dataclass
class Encoded(ModelOutput):
    hidden: torch.Tensor | None = None
    pooled: torch.Tensor | None = None


class Linear(nn.Linear):
    """(B, 4, 6) -> (B, D)."""

    def forward(self, value):
        return super().forward(value.mean(dim=1))


class Recurrent(nn.LSTM):
    """(B, 4, 6) -> out (B, 4, D), and two states (1, B, D)."""

    def __init__(self, size, width):
        super().__init__(size, width, batch_first=True)


class Pooled(nn.Linear):
    """(B, 4, 6) -> hidden (B, 4, D) and pooled (B, D), as Hugging Face models return."""

    def forward(self, value):
        hidden = super().forward(value)
        return Encoded(hidden=hidden, pooled=hidden.tanh().mean(dim=1))


class Sound(nn.Conv1d):
    """(B, 4, 6) -> (B, D, 6)."""

    def __init__(self, size, width):
        super().__init__(4, width, 3, padding=1)


class Picture(nn.Conv2d):
    """(B, 4, 6) -> (B, D, 4, 6)."""

    def __init__(self, size, width):
        super().__init__(1, width, 3, padding=1)

    def forward(self, value):
        return super().forward(value[:, None])


READ = {  # what the fusion reads of the output of an encoder: (B, D)
    Linear: lambda out: out,
    nn.Linear: lambda out: out.mean(dim=1),
    Recurrent: lambda out: out[1][0][-1],
    Pooled: lambda out: out.pooled,
    Sound: lambda out: out.amax(dim=2),
    Picture: lambda out: out.mean(dim=(2, 3)),
}


class Late(nn.Module):
    """Any encoders, one of several fusions, and a head."""

    def __init__(self, kinds, widths, fusion="concat"):
        super().__init__()
        self.kinds, self.fusion = kinds, fusion
        pairs = zip(kinds, widths, strict=True)
        self.nets = nn.ModuleList([kind(6, width) for kind, width in pairs])
        self.maps = nn.ModuleList([nn.Linear(width, 8) for width in widths])
        self.norm, self.head = nn.LayerNorm(8), nn.Linear(8, 3)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, *values):
        triples = zip(self.kinds, self.nets, values, strict=True)
        features = [READ[kind](net(value)) for kind, net, value in triples]
        mapped = [own(feature) for own, feature in zip(self.maps, features, strict=True)]
        return self.head(self.norm(self.fused(torch.stack(mapped, dim=1))))

    def fused(self, mapped):
        if self.fusion == "attention":
            return self.attention(mapped, mapped, mapped)[0].mean(dim=1)
        if self.fusion == "gated":
            return (mapped * mapped.softmax(dim=1)).sum(dim=1)
        return mapped.sum(dim=1)


class ByKeyword(Late):
    def forward(self, *, m0, m1=None, m2=None):
        return {
            "loss": None,
            "logits": super().forward(*(v for v in (m0, m1, m2) if v is not None)),
        }


class ByAnyName(Late):
    def forward(self, **values):
        return super().forward(*values.values())


class ByDict(Late):
    def forward(self, batch):
        return super().forward(*batch.values()), torch.zeros(3)


def drawn(count, size=5, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return {f"m{i}": torch.randn(size, 4, 6, generator=generator) for i in range(count)}


def named(count):
    return {f"m{i}": f"nets.{i}" for i in range(count)}


def two(cls=Late, kinds=(nn.Linear, Sound), fusion="sum", seed=0):
    torch.manual_seed(seed)
    return cls(kinds, (5, 7), fusion).eval()


def wrapped_two(size=5, **options):
    return dasp.wrap(two(), encoders=named(2), head="head", inputs=drawn(2, size), **options)


@settings(max_examples=40, deadline=None)
@given(
    kinds=st.lists(st.sampled_from(list(READ)), min_size=1, max_size=3),
    widths=st.tuples(*[st.integers(1, 9)] * 3),
    fusion=st.sampled_from(["sum", "attention", "gated"]),
    style=st.sampled_from([Late, ByKeyword, ByAnyName, ByDict]),
    size=st.integers(1, 6),
)
def test_encode_and_fuse_are_the_model(kinds, widths, fusion, style, size):
    torch.manual_seed(0)
    model = style(kinds, widths[: len(kinds)], fusion).eval()
    count = len(kinds)
    call = (lambda m, x: m(x)) if style is ByDict and count == 1 else None
    wrapped = dasp.wrap(model, encoders=named(count), head="head", inputs=drawn(count), call=call)
    inputs = drawn(count, size, seed=1)
    tokens, fused = wrapped.encode(inputs), wrapped.fuse(wrapped.encode(inputs))
    assert [token_width(wrapped, f"m{i}") for i in range(count)] == list(widths[:count])
    own = Late.forward(model, *inputs.values())
    torch.testing.assert_close(fused.logits, own, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(model.head(fused.embedding), own, rtol=1e-5, atol=1e-6)
    dasp.check_model(wrapped, inputs)
    assert all(own.ndim == 3 and len(own) == size for own in tokens.values())


class Counts(nn.Module):
    """Passes everything on and counts the calls."""

    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, value):
        self.calls += 1
        return value


def test_encoders_run_once_and_the_fusion_not_at_all_in_encode():
    model, inputs = two(), drawn(2)
    counters = [nn.Sequential(net, Counts()) for net in model.nets]
    model.nets, model.norm = nn.ModuleList(counters), nn.Sequential(model.norm, Counts())
    wrapped = dasp.wrap(model, encoders=named(2), head="head", inputs=inputs)
    counts = [module for module in model.modules() if isinstance(module, Counts)]

    def calls(run):
        before = [each.calls for each in counts]
        value = run()
        return value, [each.calls - old for each, old in zip(counts, before, strict=True)]

    tokens, found = calls(lambda: wrapped.encode(inputs))
    assert found == [1, 1, 0]
    assert calls(lambda: wrapped.fuse(tokens))[1] == [0, 0, 1]
    assert calls(lambda: wrapped.encode({"m1": inputs["m1"]}))[1] == [0, 1, 0]
    assert calls(lambda: model(*inputs.values()))[1] == [1, 1, 1]


def test_gradients_reach_tokens_and_all_weights():
    wrapped, inputs = wrapped_two(), drawn(2)
    tokens = wrapped.encode(inputs)
    for own in tokens.values():
        own.retain_grad()
    wrapped.fuse(tokens).logits.square().sum().backward()
    found = {
        name: p.grad.clone() for name, p in wrapped.model.named_parameters() if p.grad is not None
    }
    assert all(own.grad.abs().sum() > 0 for own in tokens.values())
    plain = two()
    plain(*inputs.values()).square().sum().backward()
    expected = {name: p.grad for name, p in plain.named_parameters() if p.grad is not None}
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("kind", ["mean", "zeros", "noise", torch.arange(7.0)])
def test_what_stands_for_an_absent_modality(kind):
    wrapped, inputs = wrapped_two(size=32, absent={"m1": kind}), drawn(2, seed=3)
    tokens = wrapped.encode(inputs)
    clean = wrapped.encode(drawn(2, 32))["m1"]
    found = wrapped.fuse({"m0": tokens["m0"]}).logits
    torch.testing.assert_close(found, wrapped.fuse({"m0": tokens["m0"]}).logits)
    if isinstance(kind, str) and kind == "noise":
        other = wrapped._absent("m1", 5000)
        torch.testing.assert_close(other.mean(dim=0), clean.mean(dim=0), rtol=0, atol=0.1)
        torch.testing.assert_close(other.std(dim=0), clean.std(dim=0), rtol=0.1, atol=0)
        return
    stand_in = {"mean": clean.mean(dim=0), "zeros": torch.zeros(6, 7)}.get(str(kind), kind)
    whole = {**tokens, "m1": stand_in.expand(5, 6, 7)}
    torch.testing.assert_close(found, wrapped.fuse(whole).logits)


def test_a_stand_in_of_few_samples_is_told_and_fit_does_not_change_it():
    with pytest.warns(UserWarning, match="from the 5 samples given to wrap"):
        wrapped = wrapped_two(absent="mean")
    before = wrapped.absent_m1.clone()
    dasp.adapt(wrapped, "triage").fit([drawn(2, 32, seed=4)])
    assert torch.equal(wrapped.absent_m1, before)


class Declared:
    def __init__(self, **facts):
        self.__dict__.update(facts)


@pytest.mark.parametrize(
    ("facts", "told"),
    [
        ({"task": "multilabel"}, "multilabel"),
        ({"task": "multiclass"}, None),
        ({"config": Declared(problem_type="multi_label_classification")}, "multi_label"),
        ({"config": Declared(problem_type="single_label_classification")}, None),
        ({"config": Declared(problem_type=None)}, None),
        ({"task": nn.Identity()}, None),
    ],
)
def test_a_model_that_says_it_does_not_classify_is_refused(facts, told):
    model, options = two(), {"encoders": named(2), "head": "head", "inputs": drawn(2)}
    for name, value in facts.items():
        setattr(model, name, value)
    if told is None:
        assert dasp.adapt(dasp.wrap(model, **options), "dasp")(drawn(2)).logits is not None
        with pytest.raises(ContractError, match="task='regression'"):
            dasp.wrap(model, **options, task="regression")
        return
    with pytest.raises(ContractError, match=f"the wrapped .* has task='{told}"):
        dasp.wrap(model, **options)
    dasp.wrap(model, **options, task="classification")


def test_one_logit_can_become_two_by_the_call():
    model, inputs = two(), drawn(2)
    model.head = nn.Linear(model.head.in_features, 1)
    options = {"encoders": named(2), "head": "head", "inputs": inputs}
    with pytest.raises(ContractError, match="num_classes=1"):
        dasp.wrap(model, **options)
    wrapped = dasp.wrap(
        model, **options, call=lambda own, given: nn.functional.pad(own(*given.values()), (1, 0))
    )
    logits = dasp.adapt(wrapped, "source")(inputs).logits
    torch.testing.assert_close(logits[:, 1:], model(*inputs.values()))
    assert (logits[:, 0] == 0).all()


def test_probabilities_are_refused_and_their_logarithm_is_not():
    class Sure(type(two())):
        def forward(self, *inputs):
            return super().forward(*inputs).softmax(dim=1)

    model, inputs = two(Sure), drawn(2)
    options = {"encoders": named(2), "head": "head", "inputs": inputs}
    with pytest.raises(ContractError, match="the wrapped Sure returns probabilities"):
        dasp.wrap(model, **options)
    wrapped = dasp.wrap(model, **options, call=lambda own, given: own(*given.values()).log())
    found = dasp.adapt(wrapped, "source")(inputs).logits.softmax(dim=1)
    torch.testing.assert_close(found, model(*inputs.values()))


def test_messages_name_the_users_own_model():
    tta, inputs = dasp.adapt(wrapped_two(), "dasp", lr=1e-3), drawn(2)
    tta(inputs)
    kind = type(two()).__name__
    assert "encoders={'m0': 'nets.0'" in repr(wrapped_two())
    assert repr(tta) == f"<Dasp (released) on the wrapped {kind}, 1 batch seen, lr 0.001>"
    with pytest.raises(ContractError, match=f"Sumi cannot adapt the wrapped {kind}") as caught:
        dasp.adapt(wrapped_two(), "sumi")
    assert "\n" not in str(caught.value)
    with pytest.raises(ContractError, match=r"dasp.inspect\(model, inputs\)"):
        dasp.adapt(two(), "tent")


def test_the_model_is_unchanged_and_close_removes_the_gates():
    model, inputs = two().train(), drawn(2)
    model.nets[1] = nn.Sequential(model.nets[1], nn.BatchNorm1d(7), nn.Dropout(0.5))
    before, state = list(model.state_dict()), copy.deepcopy(model.state_dict())
    generator = torch.get_rng_state()
    with dasp.wrap(model, encoders=named(2), head="head", inputs=inputs) as wrapped:
        assert torch.equal(generator, torch.get_rng_state())
        assert wrapped.training
        assert all(module.training for module in model.modules())
        other = dasp.wrap(model, encoders=named(2), inputs=inputs)
        wrapped.encode(inputs)
    assert list(model.state_dict()) == before
    wrapped.eval()
    expected = model(*inputs.values())
    torch.testing.assert_close(other.fuse(other.encode(inputs)).logits, expected)
    torch.testing.assert_close(model.load_state_dict(state) and state, dict(model.state_dict()))
    with pytest.raises(StateError, match=r"closed: call dasp.wrap\(\) again"):
        wrapped.encode(inputs)
    other.close()
    other.close()
    assert not any("forward" in vars(module) for module in model.modules())


def test_a_forward_that_another_library_set_is_kept():
    model, inputs = two(), drawn(2)
    own = model.nets[0].forward
    model.nets[0].forward = lambda value: own(2 * value)
    expected = model(*inputs.values())
    with dasp.wrap(model, encoders=named(2), head="head", inputs=inputs) as wrapped:
        torch.testing.assert_close(wrapped.fuse(wrapped.encode(inputs)).logits, expected)
    torch.testing.assert_close(model(*inputs.values()), expected)


def test_a_deep_copy_runs_its_own_weights():
    wrapped, inputs = wrapped_two(), drawn(2)
    twin = copy.deepcopy(wrapped)
    before = wrapped.fuse(wrapped.encode(inputs)).logits
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.add_(0.5)
    expected = copy.deepcopy(twin.model)(*inputs.values())
    torch.testing.assert_close(twin.fuse(twin.encode(inputs)).logits, expected)
    torch.testing.assert_close(wrapped.fuse(wrapped.encode(inputs)).logits, before)
    assert not torch.allclose(before, expected)


class Waits(nn.Linear):
    """A head that lets another thread run in the middle."""

    def __init__(self, inside, go_on):
        super().__init__(8, 3)
        self.events = inside, go_on

    def forward(self, value):
        if threading.current_thread().name == "first":
            self.events[0].set()
            assert self.events[1].wait(20)
        return super().forward(value)


def test_other_threads_may_use_the_model_meanwhile():
    inside, go_on = threading.Event(), threading.Event()
    model, inputs, found = two(), drawn(2), []
    model.head = Waits(inside, go_on)
    wrapped = dasp.wrap(model, encoders=named(2), head="head", inputs=inputs)
    expected, tokens = model(*inputs.values()), wrapped.encode(inputs)
    other = {name: own + 1 for name, own in tokens.items()}
    thread = threading.Thread(target=lambda: found.append(wrapped.fuse(other)), name="first")
    thread.start()
    assert inside.wait(20)
    torch.testing.assert_close(model(*inputs.values()), expected)
    torch.testing.assert_close(wrapped.fuse(tokens).logits, expected)
    go_on.set()
    thread.join()
    torch.testing.assert_close(found[0].logits, wrapped.fuse(other).logits)


class Shared(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk, self.mix, self.head = nn.Linear(6, 5), nn.Linear(5, 5), nn.Linear(5, 3)

    def forward(self, left, right):
        second = self.trunk(right).mean(dim=1)
        return self.head(self.trunk(left).mean(dim=1) * self.mix(second) - second)


def test_modalities_may_share_an_encoder():
    torch.manual_seed(0)
    model, values = Shared(), drawn(2)
    inputs = {"left": values["m0"], "right": values["m1"]}
    wrapped = dasp.wrap(model, encoders={"right": "trunk", "left": "trunk"}, inputs=inputs)
    torch.testing.assert_close(wrapped.fuse(wrapped.encode(inputs)).logits, model(**inputs))
    dasp.check_model(wrapped, inputs)
    with pytest.raises(ContractError, match="depends on more than the input 'left'"):
        dasp.wrap(model, encoders={"left": "trunk", "right": "trunk"}, inputs=inputs)
    with pytest.raises(ContractError, match="left runs more than once per modality"):
        dasp.wrap(model, encoders={"left": "trunk", "right": "mix"}, inputs=inputs)


def test_a_compiled_model_is_wrapped_uncompiled():
    model, inputs = two(), drawn(2)
    expected = model(*inputs.values())
    compiled = torch.compile(model, backend="eager")
    wrapped = dasp.wrap(compiled, encoders=named(2), head="head", inputs=inputs)
    assert wrapped.model is model
    torch.testing.assert_close(wrapped.fuse(wrapped.encode(inputs)).logits, expected)
    torch.testing.assert_close(compiled(*inputs.values()), expected)


def test_what_cannot_be_entered_is_refused():
    model, inputs = two(), drawn(2)
    with pytest.raises(ContractError, match=r"DataParallel runs copies.*pass model.module"):
        dasp.wrap(nn.DataParallel(model), encoders=named(2), inputs=inputs)
    with pytest.raises(ContractError, match=r"must be an nn\.Module, not function"):
        dasp.wrap(lambda: 0, encoders=named(2), inputs=inputs)
    with (
        dasp.wrap(model, encoders=named(2), inputs=inputs) as wrapped,
        pytest.raises(ContractError, match=r"wrapped already: pass it to dasp\.adapt"),
    ):
        dasp.wrap(wrapped, encoders=named(2), inputs=inputs)
    model.nets[0].compile(backend="eager")
    with pytest.raises(ContractError, match="is compiled by"):
        dasp.wrap(model, encoders=named(2), inputs=inputs)


def test_a_head_may_be_any_linear_map_after_the_modalities_meet():
    class Deep(Late):
        def __init__(self):
            super().__init__((nn.Linear, Sound), (5, 7), "sum")
            self.last = nn.Linear(3, 4)

        def forward(self, *values):
            return self.last(super().forward(*values).relu())

    with dasp.wrap(Deep().eval(), encoders=named(2), head="head", inputs=drawn(2)) as wrapped:
        assert wrapped.fuse(wrapped.encode(drawn(2))).embedding.shape == (5, 8)
        assert not hasattr(wrapped, "linear_head")  # it is not the last one


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"encoders": {"m0": "net.0", "m1": "nets.1"}}, OptionError, "did you mean 'nets.0'"),
        ({"encoders": {"m0": "q9", "m1": "nets.1"}}, OptionError, "There are: attention, head,"),
        ({"head": "heads"}, OptionError, "did you mean 'head'"),
        ({"head": "attention"}, ContractError, "no tensor entered 'attention'"),
        ({"encoders": {"m0": "nets.0", "m1": "attention"}}, ContractError, r"\(m1\) did not run"),
        ({"encoders": {"m0": "nets.0", "m1": "maps.0"}}, ContractError, "depends on"),
        ({"encoders": {"m0": "nets.0"}}, InputError, r"tensors of \['m0'\], not \['m0', 'm1'\]"),
        ({"inputs": drawn(2, size=1)}, InputError, "at least 2 samples"),
        ({"inputs": [1]}, InputError, "not list"),
        ({"absent": "men"}, OptionError, "did you mean 'mean'"),
        ({"absent": torch.zeros(3)}, OptionError, r"shape \(3,\), not \(5,\) or \(4, 5\)"),
        ({"call": lambda m, x: m(x["m0"])}, ContractError, "in another way, give call="),
        ({"call": lambda m, x: m(*x.values())[0]}, ContractError, r"logits are \(B, C\)"),
    ],
)
def test_mistakes_are_explained_and_leave_no_gate(options, error, message):
    model = two()
    given = {"encoders": named(2), "head": "head", "inputs": drawn(2)} | options
    with pytest.raises(error, match=message):
        dasp.wrap(model, **given)
    assert not any("forward" in vars(module) for module in model.modules())


class Past(Late):
    """Reads an input past its encoder."""

    def forward(self, *values):
        return super().forward(*values) + values[0].mean(dim=(1, 2))[:, None]


class Divides(Late):
    """Cannot take a feature of zeros."""

    def fused(self, mapped):
        return (mapped / mapped.norm(dim=2, keepdim=True)).sum(dim=1)


class Both(nn.Module):
    """Reads two tensors that one encoder returns."""

    def __init__(self):
        super().__init__()
        self.net, self.head = Pooled(6, 8), nn.Linear(8, 3)

    def forward(self, value):
        out = self.net(value)
        return self.head(out.pooled + out.hidden[:, 0])


class Unclear(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(6, 3)

    def forward(self, one, mask):
        return self.net(one).mean(dim=1)


def test_models_that_cannot_be_wrapped_are_refused():
    one = drawn(1)
    with pytest.raises(ContractError, match="reads its inputs past them"):
        dasp.wrap(two(Past), encoders=named(2), inputs=drawn(2))
    divides, options = two(Divides), {"encoders": named(2), "inputs": drawn(2)}
    for own in divides.maps:
        nn.init.zeros_(own.bias)
    with pytest.raises(ContractError, match=r"from 'm0' alone the model predicts NaN.*mean"):
        dasp.wrap(divides, **options)
    options["inputs"] = drawn(2, 32)
    dasp.check_model(dasp.wrap(divides, **options, absent="mean"), drawn(2))
    with pytest.raises(ContractError, match="depends on 2 of the 2 tensors that 'net'"):
        dasp.wrap(Both(), encoders={"m0": "net"}, inputs=one)
    with pytest.raises(ContractError, match=r"forward\(one, mask\) of Unclear does not tell"):
        dasp.wrap(Unclear(), encoders={"m0": "net"}, inputs=one)


def test_frames_of_another_size_are_named():
    model = two(kinds=(nn.Linear, Picture))
    wrapped = dasp.wrap(model, encoders=named(2), head="head", inputs=drawn(2))
    with pytest.raises(InputError, match=r"'m1' has 20 tokens.*have 24"):
        wrapped.fuse({"m1": torch.zeros(5, 20, 7)})
    assert wrapped.fuse({"m0": torch.zeros(5, 9, 5)}).logits.shape == (5, 3)  # a longer sequence


class Frames(nn.Module):
    """Encodes every frame of (B, 4, 6) by itself: all frames are one batch to the encoder."""

    def __init__(self, order):
        super().__init__()
        self.order, self.net, self.head = order, nn.Linear(6, 5), nn.Linear(5, 3)

    def forward(self, video):
        frames = video if self.order == "samples" else video.transpose(0, 1)
        encoded = self.net(frames.flatten(0, 1)).unflatten(0, frames.shape[:2])
        return self.head(encoded.mean(dim=1 if self.order == "samples" else 0))


def test_frames_that_are_encoded_one_by_one_are_tokens_of_their_sample():
    torch.manual_seed(0)
    model, inputs = Frames("samples"), {"video": drawn(1)["m0"]}
    wrapped = dasp.wrap(model, encoders={"video": "net"}, head="head", inputs=inputs)
    tokens = wrapped.encode(inputs)
    torch.testing.assert_close(tokens["video"], model.net(inputs["video"]))
    torch.testing.assert_close(wrapped.fuse(tokens).logits, model(inputs["video"]))
    with pytest.raises(ContractError, match="or is not in their order"):
        dasp.wrap(Frames("time"), encoders={"video": "net"}, head="head", inputs=inputs)


class Image(nn.Module):
    """A plain classifier of one input."""

    def __init__(self):
        super().__init__()
        self.stem, self.norm1 = nn.Conv2d(3, 12, 4, 4), nn.LayerNorm(12)
        self.block = nn.TransformerEncoderLayer(12, 2, 24, 0.0, batch_first=True)
        self.norm2, self.head = nn.LayerNorm(12), nn.Linear(12, 5)

    def features(self, image):
        return self.block(self.norm1(self.stem(image).flatten(2).transpose(1, 2)))

    def forward(self, image):
        return self.head(self.norm2(self.features(image)).mean(dim=1))


def plain_tent(model, batches, lr):
    """Return the predictions of Tent, written without this library."""
    model.eval().requires_grad_(False)
    norms = [m for m in model.modules() if isinstance(m, nn.LayerNorm)]
    weights = [p.requires_grad_() for norm in norms for p in norm.parameters()]
    optimizer, found = torch.optim.Adam(weights, lr=lr), []
    for batch in batches:
        logits = model(batch)
        loss = -(logits.softmax(1) * logits.log_softmax(1)).sum(1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(logits.detach())
    return found


@pytest.mark.parametrize("encoder", ["stem", "block", "norm2"])
def test_tent_on_an_image_classifier_is_plain_tent(encoder):
    torch.manual_seed(0)
    model, batches = Image(), [torch.randn(16, 3, 16, 16) + 0.3 * i for i in range(6)]
    expected = plain_tent(copy.deepcopy(model), batches, lr=1e-2)
    given = {"image": batches[0]}
    tta = dasp.adapt(
        dasp.wrap(model, encoders={"image": encoder}, head="head", inputs=given), "tent", lr=1e-2
    )
    found = [tta({"image": batch}).logits for batch in batches]
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    assert not torch.allclose(found[-1], model(batches[-1]))  # it did learn something


EASY = {"source", "tent", "eata", "sar", "dasp", "triage"}  # these need nothing of a model


@pytest.mark.parametrize("method", dasp.METHODS)
def test_every_method_adapts_a_wrapped_model_or_says_what_it_lacks(method, tmp_path):
    lacks = r"cannot adapt the wrapped Late: .*the model has no |of one width"
    works = {name: works for name, works, _ in method_needs(wrapped_two())}
    if not works[method]:
        assert method not in EASY
        with pytest.raises(ContractError, match=lacks):
            dasp.adapt(wrapped_two(), method)
        return
    clean, stream = drawn(2, 32, seed=5), [drawn(2, 16, seed=i) for i in range(3)]
    tta = dasp.adapt(wrapped_two(), method, lr=1e-2)
    if method == "triage" or dasp.METHODS[method].needs_source:
        tta.fit([clean])
    before = [tta(batch).logits for batch in stream]
    tta.save(tmp_path / "state")
    one = tta({"m0": stream[0]["m0"]})
    assert torch.isfinite(one.logits).all()
    tta.reset()
    torch.testing.assert_close([tta(batch).logits for batch in stream], before, rtol=0, atol=0)
    other = dasp.adapt(wrapped_two(), method, lr=1e-2)
    other.load(tmp_path / "state")
    torch.testing.assert_close(other(stream[0]).logits, tta(stream[0]).logits, rtol=0, atol=0)


def test_a_wrapped_toy_is_the_toy(batches):
    model, inputs = Toy(), batches[0]
    names = {name: f"encoders.{name}" for name in model.modalities}
    call = lambda model, inputs: model.fuse(model.encode(inputs)).logits  # noqa: E731
    wrapped = dasp.wrap(model, encoders=names, head="head", inputs=inputs, call=call)
    own, found = model.fuse(model.encode(inputs)), wrapped.fuse(wrapped.encode(inputs))
    torch.testing.assert_close(found.logits, own.logits)
    torch.testing.assert_close(found.embedding, own.embedding)


BUILD = """
import dasp, torch
from torch import nn

class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two, self.head = nn.Linear(6, 4), nn.Linear(6, 5), nn.Linear(9, 3)

    def forward(self, audio, video):
        return self.head(torch.cat([self.one(audio), self.two(video)], dim=1))

def made(**options):
    torch.manual_seed(0)
    inputs = {"audio": torch.randn(32, 6), "video": torch.randn(32, 6)}
    names = {"audio": "one", "video": "two"}
    return dasp.wrap(Pair(), encoders=names, inputs=inputs, **options)

def build(): return made(head="head")
def again(): return made(head="head")
def headless(): return made()
def mean(): return made(head="head", absent="mean")
"""


def test_the_digest_of_a_wrapped_model_tells_wrappings_apart(tmp_path):
    (tmp_path / "mine.py").write_text(BUILD)
    inputs = {"audio": torch.ones(1, 6), "video": torch.ones(1, 6)}
    digests = {}
    for name in ("build", "again", "headless", "mean"):
        model = find_model(f"{tmp_path}/mine.py:{name}")
        digests[name] = model_digest(model, inputs=lambda: inputs)
    assert digests["build"] == digests["again"]
    assert len(set(digests.values())) == 3


def test_encoders_of_a_wrapped_model_can_be_faster():
    wrapped, inputs = wrapped_two(), drawn(2)
    fast = faster(wrapped, "int8")
    tokens, own = fast.encode(inputs), wrapped.encode(inputs)
    torch.testing.assert_close(tokens["m1"], own["m1"])  # a convolution
    assert not torch.equal(tokens["m0"], own["m0"])
    torch.testing.assert_close(tokens["m0"], own["m0"], rtol=0.1, atol=0.1)


def test_the_attention_of_a_wrapped_model_is_found(batches):
    """A model whose encoders give images of a fixed size, fused by attention."""

    class Images(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = (torch.nn.Conv2d(3, 8, 2, stride=2) for _ in range(2))
            self.mix = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
            self.head = torch.nn.Linear(8, 4)

        def forward(self, first, second):
            both = torch.cat([self.first(first).flatten(2), self.second(second).flatten(2)], dim=2)
            return self.head(self.mix(both.mT).mean(dim=1))

    inputs = {name: torch.randn(4, 3, 6, 6) for name in ("first", "second")}
    encoders = {"first": "first", "second": "second"}
    wrapped = dasp.wrap(Images(), encoders=encoders, head="head", inputs=inputs)
    tta = dasp.adapt(wrapped, "read", lr=1e-2)
    names = ("in_proj_weight", "in_proj_bias")
    assert set(tta.trainable.shapes) == {f"model.model.mix.self_attn.{n}" for n in names}
    assert tta(inputs).updated
