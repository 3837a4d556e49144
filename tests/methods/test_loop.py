"""The loop: calling is adapting, refusal, missing modalities, the log, threads, rebalancing.

What holds for every method (reset, refusal, freezing, saving, seeds) is in tests/contract.
"""

import copy
import logging
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

import dasp
from dasp.bench.checks import trial
from dasp.core.errors import ContractError, OptionError, StateError
from dasp.core.types import Step
from dasp.methods.loop import learns_from
from dasp.methods.rebalance import rebalance
from dasp.methods.state import Memory
from dasp.models import Toy
from dasp.service import events
from dasp.streams.synthetic import SyntheticWorld

# One of each kind: trains norms by raw inputs, the fusion, adapters; SGD, a running average,
# random draws, prompts, a prediction after the update.
OPTIONS = {
    "tent": {},
    "eata": {"margin": 1.0, "similarity": 1.1},
    "sar": {"margin": 1.0},
    "read": {},
    "sumi": {},
    "tsa": {},
    "brimpr": {},
    "dasp": {"delta": 1e-6},
}
LEARNING = list(OPTIONS)


def learning(name, **options):
    """An adaptation that is sure to update on the batches here."""
    return trial(name, lr=1e-2, **OPTIONS.get(name, {}), **options)


@pytest.mark.parametrize("name", LEARNING)
def test_calling_is_adapting(name, batches, same_state):
    tta = learning(name)
    before = tta.memory.capture()
    outcome = tta(batches[0])
    assert (outcome.updated, outcome.rejected) == (True, None)
    assert outcome.loss is not None
    assert not outcome.logits.requires_grad
    assert not same_state(before, tta.memory.capture())
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
def test_alone_predicts_from_each_modality_of_the_adapted_model(name, batches, same_state):
    tta = learning(name)
    source = tta.alone(batches[0])
    for modality, own in {} if name == "brimpr" else batches[0].items():  # fresh prompts are seen
        expected = tta.model.fuse(tta.model.encode({modality: own})).logits
        torch.testing.assert_close(source[modality], expected, atol=1e-3, rtol=1e-3)
    tta(batches[0])
    state = tta.memory.capture()
    adapted = tta.alone(batches[0])
    assert same_state(state, tta.memory.capture())
    assert any(not torch.equal(adapted[m], source[m]) for m in source)
    if not tta.method.tunes_encoder:
        on_tokens = tta.alone_on_tokens(tta.model.encode(batches[0]))
        assert all(torch.equal(on_tokens[m], adapted[m]) for m in adapted)


@pytest.mark.parametrize("name", ["tent", "read", "dasp"])
def test_several_steps_go_further_and_report_the_first_prediction(name, batches):
    one, three = learning(name), learning(name, steps=3)
    first, *_ = [one(batches[1]) for _ in range(3)]
    assert torch.equal(three(batches[1]).logits, first.logits)
    for key, value in one.memory.weights.items():
        assert torch.equal(value, three.memory.weights[key])


class Explodes(dasp.Method):
    """Counts its calls in a buffer and fails on demand.

    Paper: nobody, "Nothing", nowhere 2026.
    """

    version = 1
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
        loss = logits.square().mean()
        if self.calls < self.at:
            return Step(logits, loss)
        if self.how == "raise":
            raise RuntimeError("out of memory")
        if self.how == "gradient":  # a finite loss whose gradient overflows once squared
            steep = logits.mean() * 1e30
            return Step(logits, loss + steep - steep.detach())
        return Step(logits, loss * {"loss": torch.nan, "weight": 1e6, "": 1.0}[self.how])


@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize(
    ("how", "lr", "reason"),
    [
        ("loss", 1e-2, "the loss is nan"),
        ("gradient", 1e-2, "a gradient is not finite"),
        ("weight", 3e38, "the update made a weight that is not finite: lower lr"),
        ("raise", 1e-2, "out of memory"),
    ],
)
def test_what_is_not_finite_or_raises_is_rejected_whole(
    how, lr, reason, steps, batches, same_state
):
    at = 1 if how == "weight" else steps
    tta = dasp.adapt(Toy(seed=1), Explodes, how=how, at=at, steps=steps, lr=lr)
    before = tta.memory.capture()
    if how == "raise":
        with pytest.raises(RuntimeError, match=reason):
            tta(batches[1])
    else:
        outcome = tta(batches[1])
        assert (outcome.rejected, outcome.updated) == (reason, False)
        assert torch.isfinite(outcome.logits).all()
    after = tta.memory.capture()
    assert same_state(before, after)
    assert after.batch_index == 0


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


def test_the_report_of_what_is_trainable_and_the_rest_is_frozen():
    trainable = dasp.adapt(Toy(), "dasp", stable_rank=4).trainable
    assert trainable.count == 2 * (32 * 32 + 2 * 4 * 32)
    assert "adapters.audio.plastic.weight (32, 32)" in str(trainable)
    assert dasp.adapt(Toy(), "source").trainable.count == 0
    assert str(dasp.adapt(Toy(), "tent").trainable).startswith(f"{2 * 32 * 7} of")
    tta = dasp.adapt(Toy().train(), "read")
    trained = {id(p) for p in tta.model.fusion_qkv()}
    assert all(p.requires_grad == (id(p) in trained) for p in tta.model.parameters())
    assert not tta.model.training


@pytest.mark.parametrize(
    ("method", "options", "message"),
    [
        ("dasp", {"lr": 0}, "lr must be"),
        ("dasp", {"steps": 0}, "steps must be"),
        ("dasp", {"predict": "during"}, "predict must be"),
        ("dasp", {"seed": -1}, "seed must be"),
        ("dasp", {"detla": 0.1}, "did you mean 'delta'"),
        ("dasp", {"autocast": torch.bfloat16}, "autocast must be"),
        ("dasp", {"stable_rank": 1.5}, "stable_rank must be an integer"),
        ("dapss", {}, "did you mean 'dasp'"),
        (Toy, {}, "subclass of Method"),
    ],
)
def test_impossible_options(method, options, message):
    with pytest.raises(OptionError, match=message):
        dasp.adapt(Toy(), method, **options)


def test_adapting_again_closes_only_whoever_would_be_disturbed(batches):
    model = Toy(seed=1)
    pristine = copy.deepcopy(model.state_dict())
    tent = dasp.adapt(model, "tent", lr=1e-2)
    tent(batches[1])
    second = dasp.adapt(model, "dasp", delta=1e-6)
    assert all(torch.equal(value, pristine[key]) for key, value in model.state_dict().items())
    for use in (lambda: tent(batches[1]), tent.reset, lambda: tent.save("never")):
        with pytest.raises(StateError, match="closed when its model was adapted again"):
            use()
    source = dasp.adapt(model, "source")
    first = source(batches[1]).logits
    assert second(batches[1]).updated
    assert torch.equal(source(batches[1]).logits, first)


def test_a_parameter_from_nowhere_is_refused():
    class Stray(Explodes):
        def trainable(self):
            return [torch.nn.Parameter(torch.zeros(1))]

    with pytest.raises(ContractError, match="neither to the model nor to the method"):
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


def test_it_fits_inside_an_inference_script():
    """What it learns there can be changed later."""
    drawn = torch.randn(3, 64, 6, 12, generator=torch.Generator().manual_seed(0))
    clean, damaged = ({"audio": own, "video": drawn[2]} for own in (drawn[0], 4 * drawn[1] + 3))
    twin, tta = dasp.adapt(Toy(), "triage", lr="auto"), dasp.adapt(Toy(), "triage", lr="auto")
    twin.fit([clean])
    with torch.inference_mode():
        tta.fit([clean])
    outcome = tta(damaged)
    assert "audio" in outcome.diagnosis.biased
    assert torch.equal(outcome.logits, twin(damaged).logits)
    tta.reset()


@pytest.mark.parametrize(
    ("name", "options"),
    [*((name, {}) for name in ("source", "tent", "sumi", "dasp")), ("dasp", {"steps": 3}),
     ("dasp", {"predict": "after"}), ("dasp", {"autocast": True})],
)  # fmt: skip
def test_rebalancing_changes_what_is_reported_and_nothing_else(name, options, batches):
    """And each sample is remembered once."""
    plain = learning(name, **options)
    tta = learning(name, rebalance=0.8, rebalance_memory=2, **options)
    assert "rebalancer" not in "".join(plain.memory.capture().tensors)
    rows = torch.empty(0, 8)
    for batch in batches * 2:
        before, after = plain(batch), tta(batch)
        assert torch.equal(after.logits, rebalance(before.logits, rows, 0.8))
        assert not torch.equal(after.logits, before.logits)
        assert after.logits.dtype == torch.float32
        for field in ("loss", "updated", "diagnosis"):
            assert getattr(after, field) == getattr(before, field)
        rows = torch.cat([rows, before.logits.log_softmax(dim=1)])[-16:]
        state = tta.memory.capture().tensors
        assert torch.equal(state.pop("buffer/rebalancer.rows"), rows)
        expected = plain.memory.capture().tensors
        assert all(torch.equal(value, state[key]) for key, value in expected.items())


@pytest.mark.parametrize("name", ["source", "dasp", "sar"])
def test_the_rebalancing_memory_is_part_of_the_state(name, batches, tmp_path, same_state):
    tta, twin = (learning(name, rebalance=0.8) for _ in range(2))
    start = tta.memory.capture()
    first = [tta(batch).logits for batch in batches]
    now = tta.memory.capture()
    with tta.frozen():
        frozen = tta(batches[0])
    assert same_state(now, tta.memory.capture())
    spoilt = {key: value.clone() for key, value in batches[0].items()}
    spoilt["audio"][5] = torch.nan
    assert tta(spoilt).logits[5].isnan().all()
    assert same_state(now, tta.memory.capture())
    tta.save(tmp_path / "state.safetensors")
    twin.load(tmp_path / "state.safetensors")
    with twin.frozen():
        assert torch.equal(twin(batches[0]).logits, frozen.logits)
    assert torch.equal(twin(batches[1]).logits, tta(batches[1]).logits)
    tta.reset()
    assert same_state(start, tta.memory.capture())
    assert all(torch.equal(a, tta(b).logits) for a, b in zip(first, batches, strict=True))


def test_rebalancing_one_sample_at_a_time_and_in_half_precision(batches):
    tta = dasp.adapt(Toy(seed=1).bfloat16(), "dasp", rebalance=1.0, rebalance_memory=1)
    for row in range(12):
        one = {name: value[row : row + 1].bfloat16() for name, value in batches[0].items()}
        assert torch.isfinite(tta(one).logits).all()
    rows = tta.method.rebalancer.rows
    assert rows.shape == (8, 8)
    assert rows.dtype == torch.float32


@pytest.mark.parametrize("name", ["read", "sumi", "tsa", "brimpr"])
def test_some_methods_predict_from_a_part_as_the_model_does_by_now(name, batches, same_state):
    tta = trial(name, lr=1e-2)
    for batch in batches:
        tta(batch)
    state, part = tta.memory.capture(), {"video": batches[0]["video"]}
    assert learns_from(tta.method, batches[0])
    assert not learns_from(tta.method, part)
    assert all(learns_from(trial(other).method, part) for other in ("tent", "dasp"))
    outcome = tta(part)
    with torch.no_grad():
        assert torch.equal(outcome.logits, tta.model.fuse(tta.model.encode(part)).logits)
    assert (outcome.updated, outcome.loss) == (False, None)
    after = tta.memory.capture()
    assert after.batch_index == state.batch_index + 1
    assert same_state(state, after)


def test_dasp_with_one_modality_left_predicts_as_the_source(batches, same_state):
    tta = learning("dasp")
    for batch in batches:
        assert tta(batch).updated or batch is batches[0]
    before, part = tta.memory.capture(), {"audio": batches[1]["audio"]}
    with torch.no_grad():
        tokens = tta.model.encode(part)
        source = tta.model.fuse(tokens).logits
    for outcome in (tta(part), tta.on_tokens(tokens)):
        assert torch.equal(outcome.logits, source)
        assert set(outcome.diagnosis.scores) == {"audio"}
        assert outcome.diagnosis.differences == {"audio": 0.0}
        assert not outcome.updated
        assert not outcome.diagnosis.biased
    assert same_state(before, tta.memory.capture())


class Careless(dasp.Method):
    """Takes for granted that every modality is there. Paper: Somebody, "Something", 2026."""

    version = 1

    def step(self, batch):
        assert len([batch[name] for name in self.model.modalities])
        return Step(self.forward(batch).logits)


class Decays(Careless):
    """Moves every adapter in every batch, there or not. Paper: Somebody, "Something", 2026."""

    version = 1

    def __init__(self, model, *, seed=0):
        super().__init__(model, seed=seed)
        for name in self.model.modalities:
            self.adapters[name] = torch.nn.Linear(self.model.embed_dim, 1)

    def step(self, batch):
        weights = torch.cat([p.flatten() for p in self.adapters.parameters()])
        return Step(self.forward(batch).logits, weights.square().sum())


def test_the_contract_check_sees_what_moves_or_fails():
    with pytest.raises(ContractError, match=r"video alone moves what belongs to a missing"):
        dasp.check_method(Decays)
    with pytest.raises(ContractError, match=r"fails on audio alone \(KeyError: 'video'\)"):
        dasp.check_method(Careless)
    Careless.learns_from_part = False
    dasp.check_method(Careless)


def test_every_event_has_its_line(batches, tmp_path):
    tta = learning("dasp", log=tmp_path / "events.jsonl")
    first = tta(batches[1])
    tta({"video": batches[2]["video"]})
    tta({name: value * torch.nan for name, value in batches[0].items()})
    with pytest.raises(dasp.DaspError):
        tta({})
    with tta.frozen():
        tta(batches[2])
    tta.reset()
    tta.save(tmp_path / "state.safetensors")
    tta.load(tmp_path / "state.safetensors")
    told = dasp.events.read(tmp_path / "events.jsonl")
    names = ["start", "batch", "batch", "batch", "error", "frozen", "reset", "save", "load"]
    assert [event["event"] for event in told] == names
    assert [event["batch"] for event in told] == [0, 0, 1, 2, 3, 4, 4, 4, 4]
    times = [event["time"] for event in told]
    assert times == sorted(times)
    start, learnt, partial, spoilt, error = told[:5]
    assert start["hyper"]["delta"] == "1e-06"
    assert (start["method"], start["modalities"]) == ("dasp", ["audio", "video"])
    expected = {"index": 1, "size": 16, "updated": True, "loss": first.loss}
    expected |= {"scores": first.diagnosis.scores, "biased": sorted(first.diagnosis.biased)}
    assert {name: learnt[name] for name in expected} == expected
    assert max(learnt["norms"].values()) > 0
    assert (partial["present"], partial["missing"]) == (["video"], ["audio"])
    assert set(partial["scores"]) == {"video"}
    assert spoilt["rejected"].startswith("NaN or Inf in audio and video")
    assert spoilt["scores"] is spoilt["biased"] is None
    assert error["error"].startswith("InputError: inputs lack audio, video: the model has ('audio'")
    assert told[7]["path"].endswith("state.safetensors")


def test_a_rollback_is_reported(batches, tmp_path):
    tta = learning("sar", reset_below=100.0, log=tmp_path / "events.jsonl")
    outcome = tta(batches[1])
    assert outcome.rollback == "Sar asked to start over from the source state"
    assert tta.counters["rollbacks"] == 1
    assert dasp.events.read(tmp_path / "events.jsonl")[-1]["rollback"] == outcome.rollback


def test_a_full_disk_costs_lines_and_nothing_else(batches, tmp_path, monkeypatch, caplog):
    tta, plain = learning("dasp", log=tmp_path / "events.jsonl"), learning("dasp")
    tta(batches[0])
    plain(batches[0])
    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING, "dasp"):
        patch.setattr(events.os, "write", lambda handle, data: 0)
        for batch in batches:
            assert torch.equal(tta(batch).logits, plain(batch).logits)
    assert tta.counters["write_errors"] == 3
    (record,) = caplog.records
    assert "events.jsonl and continues without: [Errno 28] No space left" in record.getMessage()
    tta(batches[0])
    places = [e["batch"] for e in dasp.events.read(tmp_path / "events.jsonl")]
    assert places == [0, 0, 4]


def test_a_log_that_cannot_be_is_refused_before_the_model_is_touched(tmp_path):
    model = Toy(seed=1).train()
    with pytest.raises(OptionError, match="is a directory"):
        dasp.adapt(model, "dasp", log=tmp_path)
    assert model.training


def test_without_a_log_nothing_is_asked_of_the_weights(batches, monkeypatch):
    monkeypatch.setattr(Memory, "distances", lambda self: pytest.fail("asked"))
    dasp.adapt(Toy(seed=1), "dasp")(batches[0])


THREADS, EACH = 4, 6


def in_threads(target):
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(target, range(THREADS)))  # raises what a thread raised


@pytest.mark.parametrize("name", ["tent", "tsa", "dasp"])
def test_threads_give_what_some_order_gives(name, tmp_path, same_state):
    tta, twin = learning(name, log=tmp_path / "events.jsonl"), learning(name)
    world, sides = SyntheticWorld(), ({"video": 4.0}, {"audio": 4.0})
    # Batches of different sizes, so that the log tells which was which.
    drawn = [world.draw(2 + i, seed=i, shift=sides[i % 2]) for i in range(THREADS * EACH)]
    batches = [batch.inputs for batch in drawn]
    outcomes = {}
    barrier = threading.Barrier(THREADS)

    def work(number):
        barrier.wait()
        for place in range(number, len(batches), THREADS):
            outcomes[place] = tta(batches[place])
            tta.metrics()

    in_threads(work)
    order = [event["size"] - 2 for event in dasp.events.read(tmp_path / "events.jsonl")[1:]]
    assert sorted(order) == list(range(len(batches)))
    for place in order:
        assert torch.equal(outcomes[place].logits, twin(batches[place]).logits)
    state, serial = tta.memory.capture(), twin.memory.capture()
    assert state.batch_index == serial.batch_index == len(batches)
    assert same_state(state, serial)


def test_resets_saves_and_loads_among_calls_break_nothing(tmp_path, batches):
    tta = learning("dasp", checkpoint=tmp_path / "checkpoint.safetensors", checkpoint_every=3)

    def work(number):
        for place in range(8):
            assert tta(batches[place % 3]).rejected is None
            if number == 0:
                tta.reset()
            if number == 1:
                tta.save(tmp_path / "state.safetensors")
                tta.load(tmp_path / "state.safetensors")
            if number == 2:
                tta.load_state(tta.state())
                tta.alone(batches[0])

    in_threads(work)
    assert tta.counters["batches"] == 8 * THREADS
    assert tta.counters["saves"] == 8 + 8 * THREADS // 3
    tta.reset()
    assert torch.equal(tta(batches[1]).logits, learning("dasp")(batches[1]).logits)


def test_frozen_holds_for_its_own_thread_alone(batches):
    tta = learning("dasp")
    with tta.frozen():
        with tta.frozen():  # blocks nest
            pass
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(tta, batches[1]).result(30).updated
        assert not tta(batches[1]).updated
    assert tta.counters["frozen"] == 1
