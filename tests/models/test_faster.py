import copy
import pickle
import shutil

import pytest
import torch
from torch import nn

import dasp
from dasp.core.errors import ContractError, OptionError, StateError
from dasp.models import Toy, faster

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


@torch.no_grad()
def test_int8_gives_a_sample_the_same_tokens_in_any_batch(model, batches):
    fast, inputs = faster(model, "int8"), batches[0]
    whole = fast.encode(inputs)
    part = fast.encode({name: value[3:5] for name, value in inputs.items()})
    for name in whole:
        torch.testing.assert_close(part[name], whole[name][3:5], atol=1e-5, rtol=0)


def test_tokens_have_no_gradient_and_do_not_depend_on_autocast(model, batches):
    for kind in KINDS:
        fast = faster(model, kind)
        tokens = fast.encode(batches[0])
        with torch.autocast("cpu", torch.bfloat16):
            again = fast.encode(batches[0])
        assert not any(value.requires_grad for value in tokens.values())
        assert all(torch.equal(again[name], tokens[name]) for name in tokens)
        assert dasp.adapt(fast, "dasp", autocast=True)(batches[0]).logits.dtype == torch.float32


@pytest.mark.parametrize("name", list(dasp.METHODS))
def test_every_method_runs_or_says_why_not(name, model, batches):
    fast = faster(model, "int8")
    if dasp.METHODS[name].tunes_encoder:
        with pytest.raises(
            ContractError, match="tunes the encoders, and those of this Toy are int8"
        ):
            dasp.adapt(fast, name)
        return
    tta = dasp.adapt(fast, name, lr=1e-2)
    outcome = [tta(batch) for batch in batches][-1]
    assert torch.isfinite(outcome.logits).all()
    assert outcome.rejected is None


def test_clean_samples_are_learnt_from_by_the_same_encoders(model, batches):
    fast = faster(model, "int8")
    tta = dasp.adapt(fast, "dasp", variant="robust")
    tta.fit(batches[:1] * 4)
    levels = tta.memory.capture().tensors
    plain = dasp.adapt(model, "dasp", variant="robust")
    plain.fit(batches[:1] * 4)
    other = plain.memory.capture().tensors
    assert any(not torch.equal(value, other[name]) for name, value in levels.items())


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
    with pytest.raises(OptionError, match="are int8 already"):
        faster(faster(model, "int8"), "bfloat16")
    with pytest.raises(ContractError, match=r"float64: pass model\.float"):
        faster(Toy().double(), "bfloat16")
    with pytest.raises(ContractError, match="has no modalities"):
        faster(nn.Linear(2, 2), "int8")
    model.encode = model.encode
    with pytest.raises(ContractError, match="wrapped already"):
        faster(model, "int8")
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(OptionError, match="no no-such-compiler here"):
        faster(Toy(), "compiled")


def test_int8_needs_linear_maps_in_the_encoders():
    inputs, fast = {"radar": torch.randn(4, 2, 8)}, faster(Convolutions().eval(), "int8")
    with pytest.raises(ContractError, match=r"Convolutions runs no nn\.Linear"):
        dasp.adapt(fast, "source")(inputs)
    bare = Convolutions()
    bare.layer = bare.both = bare.head = nn.Identity()
    with pytest.raises(ContractError, match=r"runs no nn\.Linear"):
        faster(bare, "int8")


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("kind", KINDS)
def test_slow_hardware_is_named(kind, model, monkeypatch):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx2": True}, raising=False)
    with pytest.warns(RuntimeWarning, match=f"{kind} encoders will be slower") as caught:
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
