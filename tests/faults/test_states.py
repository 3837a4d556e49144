"""States are whole or refused: damaged files, modes, signals, interrupts, forgotten handles."""

import copy
import gc
import os
import signal
import threading
import time

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import save_file
from torch import nn

import dasp
from dasp.bench.checks import trial
from dasp.core.errors import DaspError, StateError
from dasp.models import Toy
from dasp.streams.synthetic import CLEAN, SyntheticWorld

WORLD = SyntheticWorld(classes=3)
SHIFTED = {"dasp": {"delta": 1e-6}, "robust": {}, "tent": {}}


def adapted(method="dasp", batches=3, model=None, **options):
    tta = dasp.adapt(
        model or Toy(embed_dim=8, num_classes=3, seed=1),
        method,
        lr=1e-2,
        **SHIFTED.get(method, {}),
        **options,
    )
    if method == "robust":
        tta.fit([WORLD.draw(64, seed=1).inputs])
    for batch in stream(batches):
        tta(batch)
    return tta


def stream(count):
    names = [("audio", "video", CLEAN)[i % 3] for i in range(count)]
    return [batch.inputs for batch in WORLD.stream(names, 1, 8, 4.0)]


def same(first, second):
    return first.keys() == second.keys() and all(
        torch.equal(first[k], second[k])
        if isinstance(first[k], torch.Tensor)
        else same(first[k], second[k])
        if isinstance(first[k], dict)
        else first[k] == second[k]
        for k in first
    )


def settled(tta):
    """Return a state without the counters, which count refusals too."""
    return {k: v for k, v in tta.state().items() if k != "counters"}


# --- damaged states ------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["dasp", "robust", "tent"])
@given(place=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_a_flipped_bit_is_refused_or_changes_nothing(tmp_path_factory, method, place, bit):
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


KEPT: dict[str, dasp.methods.loop.Adaptation] = {}


def changed(state, field, value):
    other = copy.deepcopy(state)
    if field in other["tensors"]:
        other["tensors"][field] = value(other["tensors"][field])
    else:
        other[field] = value
    return other


def first(state, start):
    return next(name for name in state["tensors"] if name.startswith(start))


@pytest.mark.parametrize(
    ("start", "change"),
    [
        ("weight/", lambda t: t * torch.nan),
        ("weight/", lambda t: t + torch.inf),
        ("weight/", lambda t: t.double()),
        ("weight/", lambda t: t[:1]),
        ("optimizer/", lambda t: torch.zeros(7, 7)),
        ("optimizer/", lambda t: t * torch.nan),
        ("buffer/", lambda t: torch.zeros(3, 3, 3)),
    ],
)
def test_a_tensor_that_does_not_fit_is_named_and_nothing_is_taken(start, change):
    method = "robust" if start == "buffer/" else "dasp"
    tta = adapted(method)
    before, state = settled(tta), tta.state()
    name = first(state, start)
    with pytest.raises(StateError, match=name.split("/")[1].split(".")[0]):
        tta.load_state(changed(state, name, change))
    assert same(settled(tta), before)


@pytest.mark.parametrize("value", [-3, 1.5, "4", None, True, 2**70])
def test_odd_batch_indices_are_refused(value):
    tta = adapted()
    before = settled(tta)
    with pytest.raises(StateError, match="batch_index"):
        tta.load_state(changed(tta.state(), "batch_index", value))
    assert same(settled(tta), before)


@pytest.mark.parametrize(
    "counters",
    [{"batches": -1}, {"batches": "many"}, {"batches": 2.5}, [], "none", {"flagged": {"smell": 1}}],
)
def test_resume_refuses_odd_counters(tmp_path, counters):
    import json

    path = tmp_path / "state.safetensors"
    tta = adapted(checkpoint=path, checkpoint_every=1)
    before, counted = settled(tta), tta.counters
    with safe_open(path, framework="pt") as file:
        metadata = file.metadata()
        tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    metadata["counters"] = json.dumps(counters)
    save_file(tensors, path, metadata=metadata)
    with pytest.raises(StateError):
        tta.resume()
    assert same(settled(tta), before)
    assert tta.counters == counted


def test_a_tensor_too_many_or_missing_is_named():
    tta = adapted()
    state = tta.state()
    more, less = copy.deepcopy(state), copy.deepcopy(state)
    more["tensors"]["weight/adapters.smell.plastic.weight"] = torch.zeros(2)
    del less["tensors"][first(state, "optimizer/")]
    for other in (more, less):
        with pytest.raises(StateError):
            tta.load_state(other)


# --- modes ---------------------------------------------------------------------------------------


class Normed(Toy):
    """The toy with a BatchNorm over its tokens and dropout, which behave otherwise in training."""

    def __init__(self):
        super().__init__(embed_dim=8, num_classes=3, seed=1)
        self.batch_norm, self.dropout = nn.BatchNorm1d(8), nn.Dropout(0.5)

    def fuse(self, tokens):
        normed = {
            name: self.dropout(self.batch_norm(value.transpose(1, 2)).transpose(1, 2))
            for name, value in tokens.items()
        }
        return super().fuse(normed)


@pytest.mark.parametrize("method", ["source", "tent", "dasp"])
def test_training_mode_of_the_model_neither_drifts_nor_is_changed(method):
    model, twin = Normed(), Normed()
    tta, other = (adapted(method, batches=0, model=each) for each in (model, twin))
    model.train()
    start = {k: v.clone() for k, v in model.state_dict().items()}
    spoilt = {name: value * torch.nan for name, value in stream(1)[0].items()}
    for batch in [*stream(2), spoilt]:
        with tta.frozen():
            tta(batch)
    tta(spoilt)
    assert same(dict(model.state_dict()), start)
    for batch in stream(4):
        assert torch.equal(tta(batch).logits, other(batch).logits)
        assert model.training
        assert not twin.training
    tta.reset()
    assert same(dict(model.state_dict()), start)


def test_buffers_of_the_model_belong_to_the_snapshot():
    class Counts(Toy):
        def __init__(self):
            super().__init__(embed_dim=8, num_classes=3, seed=1)
            self.register_buffer("calls", torch.zeros(()))

        def fuse(self, tokens):
            self.calls += 1
            return super().fuse(tokens)

    model = Counts()
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
    model = Slow(embed_dim=8, num_classes=3, seed=1)
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
    assert same(settled(tta)["tensors"], settled(twin)["tensors"])


def test_an_interrupt_at_any_moment_leaves_a_batch_learnt_and_counted_or_neither():
    import sys

    batch = stream(1)[0]
    quiet = adapted("tent", batches=0)
    lines = 0

    def count(frame, event, _):
        nonlocal lines
        inside = "/dasp/" in frame.f_code.co_filename
        lines += inside and event == "line"
        return count if inside else None

    sys.settrace(count)
    quiet(batch)
    sys.settrace(None)
    source, learnt = None, settled(quiet)["tensors"]
    for at in range(1, lines, max(1, lines // 150)):
        tta = adapted("tent", batches=0)
        source = source or settled(tta)["tensors"]
        seen = 0

        def interrupt(frame, event, _):
            nonlocal seen
            inside = "/dasp/" in frame.f_code.co_filename
            seen += inside and event == "line"
            if seen == at:  # noqa: B023
                sys.settrace(None)
                raise KeyboardInterrupt
            return interrupt if inside else None

        sys.settrace(interrupt)
        try:
            tta(batch)
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(None)
        state, counted = settled(tta), tta.counters["batches"]
        assert state["batch_index"] == counted, at
        assert same(state["tensors"], learnt if counted else source), at


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
    model = Toy(embed_dim=8, num_classes=3, seed=1)
    weights = {k: v.clone() for k, v in model.state_dict().items()}

    def attempt():
        tta = dasp.adapt(model, "tent", lr=1e-1)
        for batch in stream(3):
            tta(batch)

    attempt()
    gc.collect()
    tta = dasp.adapt(model, "source")
    assert same(dict(model.state_dict()), weights)
    expected = Toy(embed_dim=8, num_classes=3, seed=1)(stream(1)[0])
    assert torch.allclose(tta(stream(1)[0]).logits, expected)


def test_weights_loaded_on_purpose_after_a_forgotten_handle_are_the_source():
    model = Toy(embed_dim=8, num_classes=3, seed=1)
    dasp.adapt(model, "tent", lr=1e-1)(stream(1)[0])
    gc.collect()
    other = Toy(embed_dim=8, num_classes=3, seed=2).state_dict()
    model.load_state_dict(other)
    dasp.adapt(model, "source")
    assert same(dict(model.state_dict()), dict(other))


def test_frozen_calls_do_not_diagnose_with_the_queue_of_an_earlier_stream():
    tta = adapted("robust", batches=0)
    clean = [WORLD.draw(8, seed=100 + i).inputs for i in range(4)]
    with tta.frozen():
        expected = [tta(batch).diagnosis.scores for batch in clean]
    for batch in stream(9):
        tta(batch)
    with tta.frozen():
        assert [tta(batch).diagnosis.scores for batch in clean] == expected


@pytest.mark.parametrize("change", [nn.Module.double, nn.Module.half])
def test_another_dtype_after_adapt_is_an_error_that_says_so(change):
    tta = adapted("dasp")
    change(tta.model)
    with pytest.raises(DaspError, match=r"float32.*float(64|16)|float(64|16).*float32"):
        tta(stream(1)[0])


def test_another_device_after_adapt_is_an_error_that_says_so():
    tta = adapted("dasp")
    tta.model.to("meta")
    with pytest.raises(DaspError, match="meta"):
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

    tta = adapted("source", batches=0, model=Waits(embed_dim=8, num_classes=3, seed=1))
    caller = threading.Thread(target=lambda: tta(stream(1)[0]))
    caller.start()
    inside.wait(20)
    child = os.fork()
    if child == 0:
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
    end = time.monotonic() + 20
    status = None
    while time.monotonic() < end and status is None:
        done, code = os.waitpid(child, os.WNOHANG)
        status = code if done else None
        time.sleep(0.02)
    if status is None:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert status == 0, "the child hung or failed"
