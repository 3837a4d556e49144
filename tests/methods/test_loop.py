"""The loop: calling is adapting, refusal, missing modalities, the log, threads, rebalancing.

What holds for every method (reset, refusal, freezing, saving, seeds) is in tests/contract.
"""

import copy
import logging
import threading

import pytest
import torch

import dasp
from dasp.bench.checks import trial
from dasp.core.errors import ContractError, OptionError, StateError
from dasp.core.types import Step
from dasp.methods.loop import Loop, learns_from
from dasp.methods.rebalance import rebalance
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


def same(first, second):
    return first.tensors.keys() == second.tensors.keys() and all(
        torch.equal(value.nan_to_num(), second.tensors[key].nan_to_num())
        for key, value in first.tensors.items()
    )


def learning(name, **options):
    """An adaptation that is sure to update on the batches here."""
    return trial(name, lr=1e-2, **OPTIONS.get(name, {}), **options)


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
        if self.calls < self.at:
            return Step(logits, logits.square().mean())
        if self.how == "raise":
            raise RuntimeError("out of memory")
        scale = {"loss": torch.nan, "gradient": 1e30, "weight": 1e6, "": 1.0}[self.how]
        loss = logits.square().mean()
        if self.how == "gradient":  # a finite loss whose gradient overflows once squared
            steep = logits.mean() * scale
            return Step(logits, loss + steep - steep.detach())
        return Step(logits, loss * scale)


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


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
@pytest.mark.parametrize("name", ["source", "tent", "tsa", "dasp"])
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
        ({"steps": 0}, "steps must be"),
        ({"predict": "during"}, "predict must be"),
        ({"seed": -1}, "seed must be"),
        ({"detla": 0.1}, "did you mean 'delta'"),
        ({"autocast": torch.bfloat16}, "autocast must be"),
        ({"stable_rank": 1.5}, "stable_rank must be an integer"),
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


@pytest.mark.parametrize("name", ["source", "tent", "sumi", "dasp"])
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


def test_rebalancing_one_sample_at_a_time_and_in_half_precision(batches):
    tta = dasp.adapt(Toy(seed=1).bfloat16(), "dasp", rebalance=1.0, rebalance_memory=1)
    for row in range(12):
        one = {name: value[row : row + 1].bfloat16() for name, value in batches[0].items()}
        assert torch.isfinite(tta(one).logits).all()
    rows = tta.memory.buffers()["rebalancer.rows"]
    assert rows.shape == (8, 8)
    assert rows.dtype == torch.float32


THREE = ("audio", "video", "depth")


@pytest.mark.parametrize(("name", "learns"), [("tent", True), ("dasp", True), ("read", False),
                                              ("tsa", False)])  # fmt: skip
def test_which_methods_learn_from_a_part(name, learns, batches):
    tta = trial(name)
    assert learns_from(tta.method, batches[0])
    assert learns_from(tta.method, {"video": batches[0]["video"]}) == learns


@pytest.mark.parametrize("name", ["read", "sumi", "tsa", "brimpr"])
def test_what_does_not_learn_from_a_part_predicts_as_the_model_does_by_now(name, batches):
    tta = trial(name, lr=1e-2)
    for batch in batches:
        tta(batch)
    state = tta.memory.capture()
    outcome = tta({"video": batches[0]["video"]})
    with torch.no_grad():
        expected = tta.model.fuse(tta.model.encode({"video": batches[0]["video"]})).logits
    assert torch.equal(outcome.logits, expected)
    assert not outcome.updated
    assert outcome.loss is None
    after = tta.memory.capture()
    assert after.batch_index == state.batch_index + 1
    assert all(torch.equal(value, after.tensors[key]) for key, value in state.tensors.items())


def test_dasp_with_one_modality_left_predicts_as_the_source(batches):
    tta = dasp.adapt(Toy(seed=1), "dasp", delta=1e-6, lr=1e-2)
    for batch in batches:
        assert tta(batch).updated or batch is batches[0]
    before = tta.memory.capture()
    outcome = tta({"audio": batches[1]["audio"]})
    with torch.no_grad():
        source = tta.model.fuse(tta.model.encode({"audio": batches[1]["audio"]})).logits
    assert torch.equal(outcome.logits, source)
    assert set(outcome.diagnosis.scores) == {"audio"}
    assert outcome.diagnosis.differences == {"audio": 0.0}
    assert not outcome.updated
    assert not outcome.diagnosis.biased
    after = tta.memory.capture()
    assert all(torch.equal(value, after.tensors[key]) for key, value in before.tensors.items())


def test_on_tokens_takes_a_part_too(batches):
    tta, twin = (dasp.adapt(Toy(seed=1), "dasp") for _ in range(2))
    part = {"video": batches[2]["video"]}
    with torch.no_grad():
        tokens = tta.model.encode(part)
    assert torch.equal(tta(part).logits, twin.on_tokens(tokens).logits)


class Decays(dasp.Method):
    """Moves every adapter in every batch, there or not.

    Paper: Somebody, "Something", Somewhere 2026.
    """

    version = 1

    def __init__(self, model, *, seed=0):
        super().__init__(model, seed=seed)
        for name in self.model.modalities:
            self.adapters[name] = torch.nn.Linear(self.model.embed_dim, 1)

    def trainable(self):
        return self.adapters.parameters()

    def step(self, batch):
        weights = torch.cat([p.flatten() for p in self.adapters.parameters()])
        return Step(self.forward(batch).logits, weights.square().sum())


class Careless(Decays):
    """Takes for granted that every modality is there.

    Paper: Somebody, "Something", Somewhere 2026.
    """

    version = 1

    def step(self, batch):
        for name in self.model.modalities:
            batch[name]
        return Step(self.forward(batch).logits)


class Careful(Careless):
    __doc__ = Careless.__doc__
    version = 1
    learns_from_part = False


def test_the_contract_check_sees_what_moves_or_fails():
    with pytest.raises(ContractError, match=r"video alone moves what belongs to a missing"):
        dasp.check_method(Decays)
    with pytest.raises(ContractError, match=r"fails on audio alone \(KeyError: 'video'\)"):
        dasp.check_method(Careless)
    with torch.random.fork_rng(devices=[]), pytest.raises(ContractError) as caught:
        dasp.check_method(Careful)  # its Linear draws from the global generator
    assert "alone" not in str(caught.value)


@pytest.fixture
def logged(tmp_path):
    """Adapt a toy that learns from every batch, with a log."""

    def build(method="dasp", **options):
        own = {"delta": 1e-6} if method == "dasp" else {}
        log = tmp_path / "events.jsonl"
        return dasp.adapt(Toy(seed=1), method, lr=1e-2, log=log, **own, **options)

    return build


def test_every_event_has_its_line(logged, batches, tmp_path):
    tta = logged()
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
    assert (start["method"], start["hyper"]["delta"]) == ("dasp", "1e-06")
    assert start["modalities"] == ["audio", "video"]
    assert learnt["scores"] == first.diagnosis.scores
    assert set(learnt["biased"]) == first.diagnosis.biased
    assert (learnt["updated"], learnt["loss"], learnt["size"]) == (True, first.loss, 16)
    assert learnt["index"] == 1
    assert max(learnt["norms"].values()) > 0
    assert (partial["present"], partial["missing"]) == (["video"], ["audio"])
    assert set(partial["scores"]) == {"video"}
    assert spoilt["rejected"].startswith("NaN or Inf in audio and video")
    assert spoilt["scores"] is spoilt["biased"] is None
    assert (
        error["error"]
        == "InputError: inputs lack audio, video: the model has " + repr(tta.model.modalities) + "."
    )
    assert told[7]["path"].endswith("state.safetensors")


def test_a_rollback_is_said(logged, batches):
    tta = logged("sar", margin=1.0, reset_below=100.0)
    outcome = tta(batches[1])
    assert outcome.rollback == "Sar asked to start over from the source state"
    assert tta.counters["rollbacks"] == 1
    assert dasp.events.read(tta._recorder.log.path)[-1]["rollback"] == outcome.rollback


def test_a_full_disk_costs_lines_and_nothing_else(logged, batches, tmp_path, monkeypatch, caplog):
    tta, plain = logged(), dasp.adapt(Toy(seed=1), "dasp", delta=1e-6, lr=1e-2)
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
    tta = dasp.adapt(Toy(seed=1), "dasp")
    monkeypatch.setattr(Loop, "distances", lambda self: pytest.fail("asked"))
    tta(batches[0])


THREADS, EACH = 4, 12


def calls():
    """Batches of different sizes, so that the log tells which was which."""
    world = SyntheticWorld()
    return [
        world.draw(2 + place, seed=place, shift={"audio" if place % 2 else "video": 4.0})
        for place in range(THREADS * EACH)
    ]


def in_threads(target):
    errors = []

    def guarded(number):
        try:
            target(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(n,)) for n in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, errors


@pytest.mark.parametrize("name", ["tent", "tsa", "dasp"])
def test_threads_give_what_some_order_gives(name, tmp_path):
    options = {"delta": 1e-6} if name == "dasp" else {}
    tta = trial(name, lr=1e-2, log=tmp_path / "events.jsonl", **options)
    batches = [batch.inputs for batch in calls()]
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
    twin = trial(name, lr=1e-2, **options)
    for place in order:
        expected = twin(batches[place])
        assert torch.equal(outcomes[place].logits, expected.logits)
    state, serial = tta.memory.capture(), twin.memory.capture()
    assert state.batch_index == serial.batch_index == len(batches)
    assert all(torch.equal(value, serial.tensors[key]) for key, value in state.tensors.items())


def test_resets_saves_and_loads_among_calls_break_nothing(tmp_path, batches):
    tta = dasp.adapt(
        Toy(seed=1), "dasp", delta=1e-6, lr=1e-2,
        checkpoint=tmp_path / "checkpoint.safetensors", checkpoint_every=3,
    )  # fmt: skip

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
    fresh = dasp.adapt(Toy(seed=1), "dasp", delta=1e-6, lr=1e-2)
    assert torch.equal(tta(batches[1]).logits, fresh(batches[1]).logits)


def test_frozen_holds_for_its_own_thread_alone(batches):
    tta = dasp.adapt(Toy(seed=1), "dasp", delta=1e-6, lr=1e-2)
    inside, done, seen = threading.Event(), threading.Event(), []

    def freezer():
        with tta.frozen():
            inside.set()
            assert done.wait(30)
            seen.append(tta(batches[1]).updated)

    thread = threading.Thread(target=freezer)
    thread.start()
    assert inside.wait(30)
    assert tta(batches[1]).updated
    done.set()
    thread.join()
    assert seen == [False]
    assert tta.counters["frozen"] == 1
