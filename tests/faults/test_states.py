"""States are whole or refused: damaged files, modes, signals, interrupts, forgotten handles."""

import gc
import os
import signal
import sys
import threading
import time
from contextlib import suppress

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import dasp
from dasp.bench.checks import trial
from dasp.core.errors import DaspError, StateError
from dasp.methods.state import write_state
from dasp.models import Toy
from dasp.streams.synthetic import CLEAN, SyntheticWorld

WORLD = SyntheticWorld(classes=3)
SHIFTED = {"dasp": {"delta": 1e-6}}


def small(kind=Toy, seed=1):
    return kind(embed_dim=8, num_classes=3, seed=seed)


def adapted(method="dasp", batches=3, model=None, **options):
    tta = dasp.adapt(model or small(), method, lr=1e-2, **SHIFTED.get(method, {}), **options)
    if method == "triage":
        tta.fit([WORLD.draw(64, seed=1).inputs])
    for batch in stream(batches):
        tta(batch)
    return tta


def stream(count):
    names = [("audio", "video", CLEAN)[i % 3] for i in range(count)]
    return [batch.inputs for batch in WORLD.stream(names, 1, 8, 4.0)]


def same(first, second):
    try:
        torch.testing.assert_close(first, second, rtol=0, atol=0)
    except AssertionError:
        return False
    return True


def settled(tta):
    """Return weights, buffers, optimizer and position; counters count refusals too."""
    state = tta.state()
    return state["tensors"] | {"batch_index": torch.tensor(state["batch_index"])}


def copy_of(model):
    return {name: value.clone() for name, value in model.state_dict().items()}


# --- damaged states ------------------------------------------------------------------------------

KEPT = {}


@pytest.mark.parametrize("method", ["dasp", "triage", "tent"])
@given(place=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_a_flipped_bit_is_refused_and_changes_nothing(tmp_path_factory, method, place, bit):
    path = tmp_path_factory.mktemp("state") / "state.safetensors"
    tta = KEPT.setdefault(method, adapted(method))
    tta.save(path)
    before = settled(tta)
    content = bytearray(path.read_bytes())
    content[int(place * len(content))] ^= 1 << bit
    path.write_bytes(content)
    with pytest.raises(StateError, match=path.name):
        tta.load(path)
    assert same(settled(tta), before)


@pytest.mark.parametrize(
    ("method", "start", "change"),
    [
        ("dasp", "weight/", lambda t: t * torch.nan),
        ("dasp", "weight/", lambda t: t + torch.inf),
        ("dasp", "weight/", lambda t: t.double()),
        ("dasp", "weight/", lambda t: t[:1]),
        ("dasp", "weight/", lambda t: 1),
        ("dasp", "weight/", None),
        ("dasp", "optimizer/", lambda t: torch.zeros(7, 7)),
        ("dasp", "optimizer/", lambda t: t * torch.nan),
        ("dasp", "optimizer/", None),
        ("triage", "buffer/", lambda t: torch.zeros(3, 3, 3)),
        ("triage", "buffer/", None),
    ],
)
def test_a_tensor_that_does_not_fit_or_is_missing_is_named_and_nothing_is_taken(
    method, start, change
):
    tta = adapted(method)
    before, state = settled(tta), tta.state()
    name = next(name for name in state["tensors"] if name.startswith(start))
    value = state["tensors"].pop(name)
    if change is not None:
        state["tensors"][name] = change(value)
    with pytest.raises(StateError, match=f"does not fit: .*{name.split('/')[1]}"):
        tta.load_state(state)
    more = {"weight/adapters.smell.plastic.weight": torch.zeros(2)}
    with pytest.raises(StateError, match=r"smell.* is not part"):
        tta.load_state(state | {"tensors": {**state["tensors"], name: value, **more}})
    assert same(settled(tta), before)


@pytest.mark.parametrize("value", [-3, 1.5, "4", None, True, 2**70])
def test_odd_batch_indices_are_refused(value):
    tta = adapted()
    before = settled(tta)
    with pytest.raises(StateError, match="batch_index"):
        tta.load_state(tta.state() | {"batch_index": value})
    assert same(settled(tta), before)


@pytest.mark.parametrize(
    "counters",
    [{"batches": -1}, {"batches": "many"}, {"batches": 2.5}, [], None, {"flagged": {"smell": 1}}],
)
def test_resume_refuses_odd_counters(tmp_path, counters):
    path = tmp_path / "state.safetensors"
    tta = adapted(checkpoint=path, checkpoint_every=1)
    before, counted, state = settled(tta), tta.counters, tta.state()
    odd = counted | counters if isinstance(counters, dict) else counters
    write_state(path, state | {"counters": odd})
    with pytest.raises(StateError, match="its counters are damaged"):
        tta.resume()
    assert same(settled(tta), before)
    assert tta.counters == counted


# --- modes ---------------------------------------------------------------------------------------


class Normed(Toy):
    """The toy with a BatchNorm over its tokens and dropout, which behave otherwise in training."""

    def __init__(self, **sizes):
        super().__init__(**sizes)
        self.batch_norm, self.dropout = nn.BatchNorm1d(8), nn.Dropout(0.5)

    def fuse(self, tokens):
        normed = {
            name: self.dropout(self.batch_norm(value.transpose(1, 2)).transpose(1, 2))
            for name, value in tokens.items()
        }
        return super().fuse(normed)


@pytest.mark.parametrize("method", ["source", "tent", "dasp"])
def test_training_mode_of_the_model_neither_drifts_nor_is_changed(method):
    model, twin = small(Normed), small(Normed)
    tta, other = (adapted(method, batches=0, model=each) for each in (model, twin))
    model.train()
    start = copy_of(model)
    spoilt = {name: value * torch.nan for name, value in stream(1)[0].items()}
    for batch in [*stream(2), spoilt]:
        with tta.frozen():
            tta(batch)
    tta(spoilt)
    assert same(copy_of(model), start)
    for batch in stream(4):
        assert torch.equal(tta(batch).logits, other(batch).logits)
        assert model.training
        assert not twin.training
    tta.reset()
    assert same(copy_of(model), start)


def test_buffers_of_the_model_belong_to_the_snapshot():
    class Counts(Toy):
        def __init__(self, **sizes):
            super().__init__(**sizes)
            self.register_buffer("calls", torch.zeros(()))

        def fuse(self, tokens):
            self.calls += 1
            return super().fuse(tokens)

    model = small(Counts)
    tta = adapted("tent", batches=0, model=model)
    tta(stream(1)[0])
    calls = model.calls.clone()
    with tta.frozen():
        tta(stream(1)[0])
    assert torch.equal(model.calls, calls)
    tta.reset()
    assert model.calls == 0


# --- signals and interrupts ----------------------------------------------------------------------


class Slow(Toy):
    """Raises a signal in the middle of a step, as an operator's `kill -USR1` might."""

    signals = False

    def fuse(self, tokens):
        if self.signals and torch.is_grad_enabled():
            os.kill(os.getpid(), signal.SIGUSR1)
            time.sleep(0.001)  # the handler runs here
        return super().fuse(tokens)


@pytest.mark.parametrize("call", ["state", "save", "reset"])
def test_a_signal_handler_sees_no_torn_state(tmp_path, call):
    model = small(Slow)
    tta, twin = adapted("tent", batches=2, model=model), adapted("tent", batches=2)
    seen = []

    def handler(*_):
        try:
            arguments = [tmp_path / "state.safetensors"] if call == "save" else []
            seen.append(getattr(tta, call)(*arguments))
        except StateError as error:
            seen.append(error)

    previous = signal.signal(signal.SIGUSR1, handler)
    try:
        model.signals = True
        outcome = tta(stream(3)[2])
    finally:
        model.signals = False
        signal.signal(signal.SIGUSR1, previous)
    assert seen
    assert all(isinstance(one, StateError) and "step" in str(one) for one in seen)
    assert torch.equal(outcome.logits, twin(stream(3)[2]).logits)
    assert same(settled(tta), settled(twin))


def traced(tta, batch, stop=0):
    """Call, and interrupt at the `stop`-th line of the library; return the number of lines."""
    lines = 0

    def trace(frame, event, _):
        nonlocal lines
        inside = "/dasp/" in frame.f_code.co_filename
        lines += inside and event == "line"
        if lines == stop and stop:
            sys.settrace(None)
            raise KeyboardInterrupt
        return trace if inside else None

    sys.settrace(trace)
    try:
        with suppress(KeyboardInterrupt):
            tta(batch)
    finally:
        sys.settrace(None)
    return lines


def test_an_interrupt_at_any_moment_leaves_a_batch_learnt_and_counted_or_neither():
    batch, quiet = stream(1)[0], adapted("tent", batches=0)
    source, lines = settled(quiet), traced(quiet, batch)
    learnt, seen = settled(quiet), set()
    for at in range(1, lines, max(1, lines // 150)):
        tta = adapted("tent", batches=0)
        traced(tta, batch, stop=at)
        counted = tta.counters["batches"]
        assert same(settled(tta), learnt if counted else source), at
        seen.add(counted)
    assert seen == {0, 1}


# --- inputs, handles, devices --------------------------------------------------------------------


@pytest.mark.parametrize("name", list(dasp.METHODS))
def test_inputs_that_require_gradients_are_left_alone(name):
    tta, twin = trial(name), trial(name)
    plain = [batch.inputs for batch in SyntheticWorld().stream(["audio"], 2, 16, 4.0)]
    for batch in plain:
        leaves = {k: v.clone().requires_grad_() for k, v in batch.items()}
        given_ = {k: v * 1.0 for k, v in leaves.items()}
        out = tta(given_)
        assert not out.logits.requires_grad
        assert torch.equal(out.logits, twin(batch).logits)
        assert all(leaf.grad is None for leaf in leaves.values())
        sum(v.sum() for v in given_.values()).backward()  # the caller's graph is still there


def test_a_forgotten_handle_leaves_no_trained_weights_behind():
    """But weights that were loaded on purpose since then are the source."""
    model = small()
    for weights in (copy_of(model), copy_of(small(seed=2))):
        dasp.adapt(model, "tent", lr=1e-1)(stream(1)[0])
        assert not same(copy_of(model), weights)
        gc.collect()
        if not same(weights, copy_of(small())):
            model.load_state_dict(weights)
        tta = dasp.adapt(model, "source")
        assert same(copy_of(model), weights)
        assert torch.allclose(tta(stream(1)[0]).logits, model(stream(1)[0]))
        del tta


def test_frozen_calls_do_not_diagnose_with_the_queue_of_an_earlier_stream():
    tta = adapted("triage", batches=0)
    clean = [WORLD.draw(8, seed=100 + i).inputs for i in range(4)]
    with tta.frozen():
        expected = [tta(batch).diagnosis.scores for batch in clean]
    for batch in stream(9):
        tta(batch)
    with tta.frozen():
        assert [tta(batch).diagnosis.scores for batch in clean] == expected


@pytest.mark.parametrize("to", [torch.float64, torch.float16, "meta"])
def test_another_dtype_or_device_after_adapt_is_an_error_that_says_so(to):
    tta = adapted("dasp")
    tta.model.to(to)
    with pytest.raises(DaspError, match=rf"is .*(float32|cpu) and the model .*{to}"):
        tta(stream(1)[0])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_during_a_call_does_not_hang_the_child():
    inside, leave = threading.Event(), threading.Event()

    class Waits(Toy):
        def fuse(self, tokens):
            inside.set()
            leave.wait(20)
            return super().fuse(tokens)

    tta = adapted("source", batches=0, model=small(Waits))
    caller = threading.Thread(target=lambda: tta(stream(1)[0]))
    caller.start()
    inside.wait(20)
    child = os.fork()
    if child == 0:
        signal.alarm(20)  # which ends a child that hangs
        leave.set()
        try:
            tta(stream(1)[0])
            os._exit(0)
        except DaspError:
            os._exit(0)
        except BaseException:
            os._exit(1)
    leave.set()
    caller.join()
    assert os.waitpid(child, 0)[1] == 0, "the child hung or failed"
