import copy
import pickle
import shutil

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import dasp
from dasp.core.errors import ContractError, OptionError, StateError
from dasp.methods import hyperparameters
from dasp.models import Toy, faster
from dasp.models.encoders import Int8Linears, int8_linear, quantise, quantise_weight

KINDS = ("bfloat16", "int8")
COMPILER = pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler g++ here")
VECTORS = pytest.mark.skipif(
    torch.backends.cpu.get_cpu_capability() == "DEFAULT",
    reason="torch.compile needs a processor, or ATEN_CPU_CAPABILITY, with vector instructions",
)


@pytest.fixture
def model():
    return Toy(depth=1, seed=1).eval()


class Own(nn.Module):
    """A model as others write them: convolutions, a layer for both parts, attention of torch's."""

    modalities, embed_dim, num_classes = ("radar",), 16, 3

    def __init__(self):
        super().__init__()
        self.first = nn.Conv1d(2, 16, 3, padding=1)
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, norm_first=True)
        self.both = nn.Linear(16, 16)
        self.head = nn.Linear(16, 3)

    def encode(self, inputs):
        first = self.first(inputs["radar"]).transpose(1, 2)
        return {"radar": self.both(self.layer(first))}

    def fuse(self, tokens):
        embedding = self.both(tokens["radar"]).mean(dim=1)
        return dasp.Fused(embedding, self.head(embedding))


class Convolutions(Own):
    def encode(self, inputs):
        return {"radar": self.first(inputs["radar"]).transpose(1, 2)}


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_the_encoders_are_near_and_the_rest_is_the_same(kind, model, batches):
    before = model.encode(batches[0])
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    fast = faster(model, kind)
    dasp.check_model(fast, batches[0])
    tokens = fast.encode(batches[0])
    for name, value in tokens.items():
        error = (value - before[name]).norm() / before[name].norm()
        assert value.dtype == torch.float32
        assert 1e-4 < error < 0.03
    for fuse in ("fuse", "fuse_with_attention"):
        ours, theirs = (getattr(m, fuse)(tokens) for m in (fast, model))
        assert torch.equal(ours.logits, theirs.logits)
    assert all(a is b for a, b in zip(fast.parameters(), model.parameters(), strict=True))
    assert all(a is b for a, b in zip(fast.fusion_qkv(), model.fusion_qkv(), strict=True))
    assert isinstance(fast, Toy)
    assert fast.config == model.config
    assert torch.equal(fast(batches[0]), fast.fuse(tokens).logits)
    # the given model is as it was
    assert type(model) is Toy
    assert torch.equal(model.encode(batches[0])["audio"], before["audio"])
    assert all(torch.equal(value, weights[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_any_model_can_be_faster_and_a_shared_layer_stays_exact_in_the_fusion(kind):
    torch.manual_seed(0)
    model, inputs = Own().eval(), {"radar": torch.randn(4, 2, 8)}
    exact, fast = model.encode(inputs), faster(model, kind)
    tokens = fast.encode(inputs)
    assert not torch.equal(tokens["radar"], exact["radar"])
    torch.testing.assert_close(tokens["radar"], exact["radar"], atol=0.05, rtol=0)
    assert torch.equal(fast.fuse(tokens).embedding, model.fuse(tokens).embedding)


def test_tokens_have_no_gradient_and_depend_neither_on_autocast_nor_on_the_batch(model, batches):
    for kind in KINDS:
        fast = faster(model, kind)
        tokens = fast.encode(batches[0])
        part = fast.encode({name: value[3:5] for name, value in batches[0].items()})
        torch.testing.assert_close(part["audio"], tokens["audio"][3:5], atol=1e-5, rtol=0)
        with torch.autocast("cpu", torch.bfloat16):
            again = fast.encode(batches[0])
        assert not any(value.requires_grad for value in tokens.values())
        assert all(torch.equal(again[name], tokens[name]) for name in tokens)
        assert dasp.adapt(fast, "dasp", autocast=True)(batches[0]).logits.dtype == torch.float32


@pytest.mark.parametrize("name", list(dasp.METHODS))
def test_every_method_runs_or_says_why_not(name, model, batches):
    fast, options = faster(model, "int8"), {}
    if "stream_length" in hyperparameters(dasp.METHODS[name]):
        options["stream_length"] = len(batches)
    if dasp.METHODS[name].tunes_encoder:
        with pytest.raises(ContractError, match="tunes the encoders; those of this Toy are int8"):
            dasp.adapt(fast, name, **options)
        return
    tta = dasp.adapt(fast, name, lr=1e-2, **options)
    if dasp.METHODS[name].needs_source:
        tta.fit(batches)
    outcome = [tta(batch) for batch in batches][-1]
    assert torch.isfinite(outcome.logits).all()
    assert outcome.rejected is None


def test_a_state_belongs_to_its_encoders(model, batches, tmp_path):
    tta = dasp.adapt(faster(model, "int8"), "dasp", lr=1e-2, delta=0.0)
    [tta(batch) for batch in batches]
    tta.save(tmp_path / "state")
    twin = dasp.adapt(faster(model, "int8"), "dasp", lr=1e-2, delta=0.0)
    twin.load(tmp_path / "state")
    assert torch.equal(tta(batches[0]).logits, twin(batches[0]).logits)
    for other in (model, faster(model, "bfloat16")):
        with pytest.raises(StateError, match="another model"):
            dasp.adapt(other, "dasp", lr=1e-2, delta=0.0).load(tmp_path / "state")


def test_two_that_share_a_fusion_do_not_disturb_each_other_unseen(model, batches):
    first = dasp.adapt(faster(model, "int8"), "read", lr=1e-2)
    source = model.fusion_qkv()[0].detach().clone()
    first(batches[0])
    assert not torch.equal(model.fusion_qkv()[0], source)
    dasp.adapt(model, "source")
    assert torch.equal(model.fusion_qkv()[0], source)
    with pytest.raises(StateError, match="closed"):
        first(batches[0])


@pytest.mark.parametrize("again", [copy.deepcopy, lambda fast: pickle.loads(pickle.dumps(fast))])
def test_copies_are_as_fast_and_have_weights_of_their_own(again, model, batches):
    fast = faster(model, "int8")
    tokens, twin = fast.encode(batches[0]), again(fast)
    assert twin.faster_encoders == "int8"
    assert torch.equal(twin.encode(batches[0])["audio"], tokens["audio"])
    with torch.no_grad():
        twin.encoders["audio"][0].weight.mul_(2.0)
    assert not torch.equal(twin.encode(batches[0])["audio"], tokens["audio"])
    assert torch.equal(fast.encode(batches[0])["audio"], tokens["audio"])


def test_what_cannot_be_faster_is_refused(model, monkeypatch):
    with pytest.raises(OptionError, match="did you mean 'int8'"):
        faster(model, "int4")
    with pytest.raises(OptionError, match="are already int8"):
        faster(faster(model, "int8"), "bfloat16")
    with pytest.raises(ContractError, match=r"float64: pass model\.float"):
        faster(Toy().double(), "bfloat16")
    with pytest.raises(ContractError, match="has no modalities"):
        faster(nn.Linear(2, 2), "int8")
    model.encode = model.encode
    with pytest.raises(ContractError, match="already compiled or wrapped"):
        faster(model, "int8")
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(OptionError, match="no-such-compiler is not installed"):
        faster(Toy(), "compiled")


def test_int8_needs_linear_maps_in_the_encoders():
    inputs, fast = {"radar": torch.randn(4, 2, 8)}, faster(Convolutions().eval(), "int8")
    with pytest.raises(ContractError, match=r"Convolutions has no nn\.Linear"):
        dasp.adapt(fast, "source")(inputs)
    bare = Convolutions()
    bare.layer = bare.both = bare.head = nn.Identity()
    with pytest.raises(ContractError, match=r"has no nn\.Linear"):
        faster(bare, "int8")


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("kind", KINDS)
def test_slow_hardware_is_named(kind, model, monkeypatch):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx2": True}, raising=False)
    with pytest.warns(
        RuntimeWarning, match=f"no instructions for products of {kind} numbers"
    ) as caught:
        faster(model, kind)
    assert caught[0].filename == __file__
    able = {"avx512_bf16": True, "avx512_vnni": True}
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: able, raising=False)
    faster(model, kind)


@COMPILER
@VECTORS
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's compiler warns of torch's parts
@torch.no_grad()
def test_compiled_encoders_compute_the_same(batches):
    model = Toy(seed=1).eval()
    fast, inputs = faster(model, "compiled"), {"audio": batches[0]["audio"]}
    tokens = fast.encode(inputs)
    torch.testing.assert_close(tokens, model.encode(inputs))
    assert torch.equal(fast.fuse(tokens).logits, model.fuse(tokens).logits)


@COMPILER
def test_what_torch_cannot_compile_is_an_error_that_says_so(model, batches, monkeypatch):
    def failing(encode):
        def run(inputs):
            raise torch._dynamo.exc.InternalTorchDynamoError("no header Python.h")

        return run

    monkeypatch.setattr(torch, "compile", failing)
    with pytest.raises(ContractError, match=r"cannot be compiled here: no header Python\.h"):
        dasp.adapt(faster(model, "compiled"), "source")(batches[0])


def drawn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@given(st.integers(0, 99), st.integers(1, 6), st.integers(1, 9), st.integers(-20, 20))
def test_no_number_moves_by_more_than_half_a_step(seed, rows, width, power):
    values = drawn(rows, width, seed=seed) * 10.0**power
    rounded, scales = quantise(values)
    assert rounded.dtype == torch.int8
    assert (rounded.abs().amax(dim=1) == 127).all()
    assert ((rounded * scales - values).abs() <= scales * 0.5001).all()


def test_whole_numbers_are_multiplied_exactly_and_each_output_has_its_own_scale():
    generator = torch.Generator().manual_seed(0)
    values = torch.randint(-126, 127, (5, 7), generator=generator).float()
    weight = torch.randint(-126, 127, (3, 7), generator=generator).float()
    values[:, 0] = weight[:, 1] = 127
    weight[0] *= 2**20  # would drown the others if they shared its scale
    bias = torch.tensor([0.0, 2.0, 3.0])
    exact = F.linear(values, weight, bias)
    assert torch.equal(int8_linear(values, quantise_weight(weight), bias), exact)
    assert torch.equal(int8_linear(values, quantise_weight(weight), None), exact - bias)


def test_a_token_depends_on_no_other_and_on_no_chunk(monkeypatch):
    x, weight, bias = drawn(10, 16), quantise_weight(drawn(8, 16, seed=1)), drawn(8, seed=2)
    x[3] *= 1e6
    whole = int8_linear(x, weight, bias)
    monkeypatch.setattr("dasp.models.encoders.CACHED_ROWS", 4)
    assert torch.equal(int8_linear(x, weight, bias), whole)
    for row in range(10):
        assert torch.equal(int8_linear(x[row : row + 1], weight, bias), whole[row : row + 1])
    for bad in (float("nan"), float("inf"), float("-inf")):
        x[1, 4] = bad
        found = int8_linear(x, weight, bias)
        assert not torch.isfinite(found[1]).any()
        assert torch.equal(found[2:], whole[2:])


@torch.no_grad()
def test_only_maps_by_float32_parameters_run_in_8_bits():
    layer, x = nn.Linear(16, 8), drawn(3, 16)
    exact, linears = layer(x), Int8Linears()
    with linears:
        rounded = layer(x)
        computed = F.linear(x, layer.weight * 1.0, layer.bias)
        double = F.linear(x.double(), layer.weight.double())
        by_name = F.linear(input=x, weight=layer.weight, bias=layer.bias)
    assert linears.count == 2
    assert torch.equal(rounded, by_name)
    assert not torch.equal(rounded, exact)
    assert torch.equal(computed, exact)
    assert double.dtype == torch.float64
    assert torch.equal(layer(x), exact)


@torch.no_grad()
def test_a_weight_that_has_changed_is_rounded_again():
    layer, x, linears = nn.Linear(16, 8, bias=False), drawn(3, 16), Int8Linears()
    with linears:
        first = layer(x)
        layer.weight.mul_(2.0)
        torch.testing.assert_close(layer(x), 2 * first)
        layer.weight.data = layer.weight.data * 2.0
        torch.testing.assert_close(layer(x), 4 * first)
