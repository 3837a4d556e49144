import copy

import pytest
import torch

import dasp
from dasp.bench.trial import trial
from dasp.core.errors import ContractError, OptionError, StateError
from dasp.core.types import Step
from dasp.methods.rebalance import rebalance
from dasp.models import Toy

ALL = list(dasp.METHODS)
LEARNING = [name for name in ALL if name != "source"]


def same(first, second):
    return first.tensors.keys() == second.tensors.keys() and all(
        torch.equal(value.nan_to_num(), second.tensors[key].nan_to_num())
        for key, value in first.tensors.items()
    )


def learning(name, **options):
    """An adaptation that is sure to update on the batches here."""
    extra = {"delta": 1e-6} if name == "dasp" else {}
    if name in ("eata", "sar"):
        extra = {"margin": 1.0}
    if name == "eata":
        extra["similarity"] = 1.1
    if name in ("sumi", "brimpr"):  # they ask more of a model, and of the user
        return trial(name, lr=1e-2, **options)
    return dasp.adapt(Toy(seed=1), name, lr=1e-2, **extra, **options)


@pytest.mark.parametrize("name", LEARNING)
def test_calling_is_adapting(name, batches):
    tta = learning(name)
    before = tta.memory.capture()
    outcome = tta(batches[0])
    assert outcome.updated
    assert outcome.rejected is None
    assert outcome.loss is not None
    assert not outcome.logits.requires_grad
    assert not same(before, tta.memory.capture())
    assert not any(p.grad is not None for p in tta.model.parameters())


@pytest.mark.parametrize("name", LEARNING)
def test_after_is_what_a_frozen_call_says_next(name, batches):
    before, after = (learning(name, predict=when) for when in ("before", "after"))
    first, second = before(batches[0]), after(batches[0])
    with before.frozen():
        expected = before(batches[0])
    assert torch.equal(second.logits, expected.logits)
    assert not torch.equal(first.logits, second.logits)
    assert not expected.updated


@pytest.mark.parametrize("name", LEARNING)
def test_what_each_modality_says_alone_is_that_of_the_adapted_model(name, batches):
    tta = learning(name)
    source = tta.alone(batches[0])
    for name_, own in {} if name == "brimpr" else batches[0].items():  # fresh prompts are seen
        expected = tta.model.fuse(tta.model.encode({name_: own})).logits
        torch.testing.assert_close(source[name_], expected, atol=1e-3, rtol=1e-3)
    tta(batches[0])
    state = tta.memory.capture()
    adapted = tta.alone(batches[0])
    assert same(state, tta.memory.capture())
    assert any(not torch.equal(adapted[m], source[m]) for m in source)
    if not tta.method.tunes_encoder:
        on_tokens = tta.alone_on_tokens(tta.model.encode(batches[0]))
        assert all(torch.equal(on_tokens[m], adapted[m]) for m in adapted)


@pytest.mark.parametrize("name", ["tent", "read", "dasp"])
def test_several_steps_go_further_and_report_the_first_prediction(name, batches):
    one, three = learning(name), learning(name, steps=3)
    for _ in range(3):
        one_outcome = one(batches[1])
    outcome = three(batches[1])
    assert torch.equal(outcome.logits, learning(name)(batches[1]).logits)
    for key, value in one.memory.weights.items():
        assert torch.equal(value, three.memory.weights[key])
    assert one_outcome.updated


class Explodes(dasp.Method):
    """Counts its calls in a buffer and fails on demand.

    Paper: nobody, "Nothing", nowhere 2026.
    """

    calls: torch.Tensor

    def __init__(self, model, *, how="", at=1, seed=0):
        super().__init__(model, seed=seed)
        self.how, self.at = how, at
        self.register_buffer("calls", torch.zeros(()))

    def trainable(self):
        return self.model.fusion_qkv()

    def optimizer(self, parameters, lr):
        kind = torch.optim.SGD if self.how == "weight" else torch.optim.Adam
        return kind(parameters, lr=lr)

    def step(self, batch):
        self.calls += 1
        torch.rand((), generator=self.generator)
        logits = self.forward(batch).logits
        if self.calls < self.at:
            return Step(logits, logits.square().mean())
        if self.how == "raise":
            raise RuntimeError("out of memory")
        scale = {"loss": torch.nan, "gradient": 1e30, "weight": 1e6, "": 1.0}[self.how]
        loss = logits.square().mean()
        if self.how == "gradient":  # a finite loss whose gradient overflows once squared
            loss = (
                loss
                + (logits * 0 + logits.mean() * scale - (logits.mean() * scale).detach()).mean()
            )
        else:
            loss = loss * scale
        return Step(logits, loss)


@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize(
    ("how", "reason"), [("loss", "the loss is nan"), ("gradient", "a gradient is not finite")]
)
def test_what_is_not_finite_is_rejected_whole(how, reason, steps, batches):
    tta = dasp.adapt(Toy(seed=1), Explodes, how=how, at=steps, steps=steps, lr=1e-2)
    before = tta.memory.capture()
    outcome = tta(batches[1])
    assert outcome.rejected == reason
    assert not outcome.updated
    assert torch.isfinite(outcome.logits).all()
    after = tta.memory.capture()
    assert same(before, after)
    assert after.batch_index == 0


def test_an_update_that_overflows_is_rejected(batches):
    tta = dasp.adapt(Toy(seed=1), Explodes, how="weight", lr=3e38)
    before = tta.memory.capture()
    assert tta(batches[1]).rejected == "the update made a weight that is not finite: lower lr"
    assert same(before, tta.memory.capture())


@pytest.mark.parametrize("steps", [1, 2])
def test_an_exception_of_the_models_leaves_the_state_as_it_was(steps, batches):
    tta = dasp.adapt(Toy(seed=1), Explodes, how="raise", at=steps, steps=steps, lr=1e-2)
    before = tta.memory.capture()
    with pytest.raises(RuntimeError, match="out of memory"):
        tta(batches[1])
    assert same(before, tta.memory.capture())


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("name", ALL)
def test_a_spoilt_sample_costs_only_itself(name, value, batches):
    tta, twin = learning(name), learning(name)
    for batch in batches:
        spoilt = {key: tensor.clone() for key, tensor in batch.items()}
        spoilt["video"][3, 0, 0] = value
        outcome = tta(spoilt)
        assert outcome.rejected == "NaN or Inf in video, 1 of 16 samples: 3"
        assert outcome.logits[3].isnan().all()
        healthy = [row for row in range(16) if row != 3]
        with twin.frozen():
            expected = twin({key: tensor[healthy] for key, tensor in batch.items()}).logits
        assert torch.equal(outcome.logits[healthy], expected)
        assert torch.equal(tta(batch).logits, twin(batch).logits)


def test_a_batch_with_nothing_finite(batches):
    tta = learning("dasp")
    outcome = tta({name: value * torch.nan for name, value in batches[0].items()})
    assert outcome.logits.isnan().all()
    assert outcome.diagnosis is None
    assert "16 of 16" in outcome.rejected


def test_tokens_are_checked_and_only_for_methods_that_take_them(batches):
    tta = learning("dasp")
    with torch.no_grad():
        tokens = tta.model.encode(batches[1])
    with pytest.raises(dasp.DaspError, match=r"expected \(B, N, 32\)"):
        tta.on_tokens({name: value[..., :4] for name, value in tokens.items()})
    spoilt = {name: value.clone() for name, value in tokens.items()}
    spoilt["audio"][0] = torch.nan
    assert "audio, 1 of 16 samples: 0" in tta.on_tokens(spoilt).rejected
    with pytest.raises(ContractError, match="Tent tunes the encoder"):
        learning("tent").on_tokens(tokens)


@pytest.mark.parametrize("name", ALL)
def test_reset_is_exact(name, batches):
    tta = learning(name)
    start = tta.memory.capture()
    first = [tta(batch).logits for batch in batches * 2]
    tta.reset()
    assert same(start, tta.memory.capture())
    assert all(torch.equal(a, tta(b).logits) for a, b in zip(first, batches * 2, strict=True))


@pytest.mark.parametrize("name", LEARNING)
def test_autocast_adapts_and_returns_float32(name, batches):
    tta = learning(name, autocast=True)
    plain = learning(name)
    for batch in batches:
        outcome, expected = tta(batch), plain(batch)
        assert outcome.logits.dtype == torch.float32
        assert torch.isfinite(outcome.logits).all()
    assert not torch.equal(outcome.logits, expected.logits)
    torch.testing.assert_close(outcome.logits, expected.logits, atol=0.5, rtol=0)
    assert all(p.dtype == torch.float32 for p in tta.memory.weights.values())


def test_a_model_in_half_precision(batches):
    model = Toy(seed=1).bfloat16()
    batch = {name: value.bfloat16() for name, value in batches[1].items()}
    outcome = dasp.adapt(model, "dasp", delta=1e-6)(batch)
    assert outcome.updated
    assert outcome.logits.dtype == torch.float32


def test_the_report_of_what_is_trainable():
    trainable = dasp.adapt(Toy(), "dasp", stable_rank=4).trainable
    assert trainable.count == 2 * (32 * 32 + 2 * 4 * 32)
    assert "adapters.audio.plastic.weight (32, 32)" in str(trainable)
    assert dasp.adapt(Toy(), "source").trainable.count == 0
    norms = dasp.adapt(Toy(), "tent").trainable
    assert norms.count == 2 * 32 * 7
    assert str(norms).startswith("448 of")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lr": 0}, "lr must be"),
        ({"lr": float("nan")}, "lr must be"),
        ({"steps": 0}, "steps must be"),
        ({"predict": "during"}, "predict is"),
        ({"seed": -1}, "seed must be"),
        ({"detla": 0.1}, "did you mean 'delta'"),
        ({"lr": "1e-4"}, "lr must be"),
        ({"autocast": torch.bfloat16}, "autocast is True"),
        ({"stable_rank": 1.5}, "stable_rank must be a whole number"),
        ({"delta": "x"}, "delta must be a number"),
    ],
)
def test_impossible_options(options, message):
    with pytest.raises(OptionError, match=message):
        dasp.adapt(Toy(), "dasp", **options)


def test_unknown_methods():
    with pytest.raises(OptionError, match="did you mean 'dasp'"):
        dasp.adapt(Toy(), "dapss")
    with pytest.raises(OptionError, match="subclass of Method"):
        dasp.adapt(Toy(), Toy)


def test_the_model_is_frozen_but_for_what_is_trained(batches):
    tta = dasp.adapt(Toy().train(), "read")
    trained = {id(p) for p in tta.model.fusion_qkv()}
    assert all(p.requires_grad == (id(p) in trained) for p in tta.model.parameters())
    assert not tta.model.training


def test_adapting_again_closes_whoever_would_be_disturbed(batches):
    model = Toy(seed=1)
    pristine = copy.deepcopy(model.state_dict())
    tent = dasp.adapt(model, "tent", lr=1e-2)
    tent(batches[1])
    second = dasp.adapt(model, "dasp", delta=1e-6)
    assert all(torch.equal(value, pristine[key]) for key, value in model.state_dict().items())
    for use in (lambda: tent(batches[1]), tent.reset, lambda: tent.save("never")):
        with pytest.raises(StateError, match="closed when its model was adapted again"):
            use()
    assert second(batches[1]).updated


def test_methods_that_leave_the_model_alone_share_it(batches):
    model = Toy(seed=1)
    source, tta = dasp.adapt(model, "source"), dasp.adapt(model, "dasp", delta=1e-6, lr=1e-2)
    first = source(batches[1]).logits
    for batch in batches:
        tta(batch)
    assert torch.equal(source(batches[1]).logits, first)


def test_frozen_blocks_nest(batches):
    tta = learning("read")
    with tta.frozen():
        with tta.frozen():
            pass
        assert not tta(batches[0]).updated
    assert tta(batches[0]).updated


def test_a_parameter_from_nowhere_is_refused():
    class Stray(Explodes):
        def trainable(self):
            return [torch.nn.Parameter(torch.zeros(1))]

    with pytest.raises(ContractError, match="neither the model's nor the method's"):
        dasp.adapt(Toy(), Stray)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("name", LEARNING)
def test_it_adapts_inside_an_inference_script(name, mode, batches):
    twin, tta = learning(name), learning(name)
    with mode():
        inputs = {key: value + 0 for key, value in batches[0].items()}
        assert dasp.adapt(Toy(seed=1), "source")(inputs).logits.shape == (16, 8)
        outcome = tta(inputs)
        tta.reset()
    assert torch.equal(outcome.logits, twin(batches[0]).logits)
    assert outcome.updated


def test_what_is_shown_is_short(batches):
    tta = learning("dasp")
    outcome = tta(batches[1])
    assert repr(tta) == "<Dasp on Toy, 1 batches seen, lr 0.01>"
    assert "tensor" not in repr(outcome)


def test_fit_is_refused_where_nothing_is_learnt_from_source():
    with pytest.raises(ContractError, match="Dasp takes nothing from source data"):
        dasp.adapt(Toy(), "dasp").fit([])


@pytest.mark.parametrize("name", ALL)
def test_rebalancing_changes_what_is_reported_and_nothing_else(name, batches):
    plain, tta = learning(name), learning(name, rebalance=0.8, rebalance_memory=2)
    assert "rebalancer" not in "".join(plain.memory.capture().tensors)
    rows = torch.empty(0, 8)
    for batch in batches * 2:
        before, after = plain(batch), tta(batch)
        assert torch.equal(after.logits, rebalance(before.logits, rows, 0.8))
        assert not torch.equal(after.logits, before.logits)
        assert (after.loss, after.updated, after.diagnosis) == (
            before.loss,
            before.updated,
            before.diagnosis,
        )
        rows = torch.cat([rows, before.logits.log_softmax(dim=1)])[-16:]
        for key, value in plain.memory.capture().tensors.items():
            assert torch.equal(value, tta.memory.capture().tensors[key])


@pytest.mark.parametrize("options", [{}, {"steps": 3}, {"predict": "after"}, {"autocast": True}])
def test_rebalancing_remembers_each_sample_once(options, batches):
    plain = learning("dasp", **options)
    tta = learning("dasp", rebalance=0.5, rebalance_memory=9, **options)
    logits = [plain(batch).logits for batch in batches]
    for batch in batches:
        assert tta(batch).logits.dtype == torch.float32
    rows = tta.memory.buffers()["rebalancer.rows"]
    assert torch.equal(rows, torch.cat(logits).log_softmax(dim=1)[-72:])


@pytest.mark.parametrize("name", ["source", "dasp", "sar"])
def test_the_rebalancing_memory_is_part_of_the_state(name, batches, tmp_path):
    tta, twin = (learning(name, rebalance=0.8) for _ in range(2))
    start = tta.memory.capture()
    first = [tta(batch).logits for batch in batches]
    now = tta.memory.capture()
    with tta.frozen():
        frozen = tta(batches[0])
    assert same(now, tta.memory.capture())
    spoilt = {key: value.clone() for key, value in batches[0].items()}
    spoilt["audio"][5] = torch.nan
    assert tta(spoilt).logits[5].isnan().all()
    assert same(now, tta.memory.capture())
    tta.save(tmp_path / "state.safetensors")
    twin.load(tmp_path / "state.safetensors")
    with twin.frozen():
        assert torch.equal(twin(batches[0]).logits, frozen.logits)
    assert torch.equal(twin(batches[1]).logits, tta(batches[1]).logits)
    tta.reset()
    assert same(start, tta.memory.capture())
    assert all(torch.equal(a, tta(b).logits) for a, b in zip(first, batches, strict=True))


@pytest.mark.parametrize("how", ["loss", "raise"])
def test_a_rejected_batch_is_not_remembered(how, batches):
    tta = dasp.adapt(Toy(seed=1), Explodes, how=how, at=2, lr=1e-2, rebalance=0.8)
    tta(batches[0])
    before = tta.memory.capture()
    if how == "raise":
        with pytest.raises(RuntimeError, match="out of memory"):
            tta(batches[1])
    else:
        with tta.frozen():
            expected = tta(batches[1]).logits
        outcome = tta(batches[1])
        assert outcome.rejected
        assert torch.equal(outcome.logits, expected)
    assert same(before, tta.memory.capture())
    assert len(before.tensors["buffer/rebalancer.rows"]) == 16


def test_rebalancing_one_sample_at_a_time_and_in_half_precision(batches):
    tta = dasp.adapt(Toy(seed=1).bfloat16(), "dasp", rebalance=1.0, rebalance_memory=1)
    for row in range(12):
        one = {name: value[row : row + 1].bfloat16() for name, value in batches[0].items()}
        assert torch.isfinite(tta(one).logits).all()
    rows = tta.memory.buffers()["rebalancer.rows"]
    assert rows.shape == (8, 8)
    assert rows.dtype == torch.float32
