"""Norm layers of every kind: what is trained, and which statistics BatchNorms use."""

import copy
import gc

import pytest
import torch
from torch import nn

import dasp
from dasp.methods.losses import entropy


def shaped(norm, *sizes):
    """A norm of images or volumes on (B, 6, 5)."""
    return nn.Sequential(nn.Unflatten(2, sizes), norm, nn.Flatten(2))


NORMS = {
    "LayerNorm": lambda: nn.LayerNorm([6, 5]),
    "BatchNorm1d": lambda: nn.BatchNorm1d(6),
    "BatchNorm2d": lambda: shaped(nn.BatchNorm2d(6), 1, 5),
    "BatchNorm3d": lambda: shaped(nn.BatchNorm3d(6), 1, 1, 5),
    "GroupNorm": lambda: nn.GroupNorm(2, 6),
    "InstanceNorm1d": lambda: nn.InstanceNorm1d(6, affine=True),
    "RMSNorm": lambda: nn.RMSNorm(5),
}
OPTIONS = {"eata": {"margin": 1.0, "similarity": 1.1}, "sar": {"margin": 1.0}, "tent": {}}


class Pair(nn.Module):
    """Two encoders with one norm each, in front of a fusion by a mean; inputs (B, 6, 5)."""

    modalities, embed_dim, num_classes = ("audio", "video"), 8, 4

    def __init__(self, norm):
        super().__init__()
        self.norms = nn.ModuleDict({name: norm() for name in self.modalities})
        self.maps = nn.ModuleDict({name: nn.Linear(5, 8) for name in self.modalities})
        self.head = nn.Linear(8, 4)

    def encode(self, inputs):
        return {n: self.maps[n](self.norms[n](v)).relu() for n, v in inputs.items()}

    def fuse(self, tokens):
        embedding = torch.cat(list(tokens.values()), dim=1).mean(dim=1)
        return dasp.Fused(embedding, self.head(embedding))

    def forward(self, inputs):
        return self.fuse(self.encode(inputs)).logits


class Flat(Pair):
    """The same without tokens: a BatchNorm1d on (B, 6), which torch refuses for one sample."""

    def encode(self, inputs):
        return {n: self.maps[n](self.norms[n](v[:, :, 0])[:, None, :5]) for n, v in inputs.items()}


def pair(kind=Pair, norm="BatchNorm1d"):
    torch.manual_seed(0)
    model = kind(NORMS[norm])
    clean = [draw(i) for i in range(20)]
    for inputs in clean:  # statistics and weights as after training
        model.train()(inputs)
    return model.eval()


def draw(seed, samples=16, shift=0.0):
    generator = torch.Generator().manual_seed(seed)
    return {
        n: torch.randn(samples, 6, 5, generator=generator) * (1 + shift) + shift
        for n in Pair.modalities
    }


def statistics(model):
    return {n: v.clone() for n, v in model.named_buffers()}


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("method", OPTIONS)
def test_norms_of_every_kind_are_trained(method, norm):
    tta = dasp.adapt(pair(norm=norm), method, lr=1e-2, **OPTIONS[method])
    names = {name for name, _ in tta.model.norms.named_parameters()}
    assert set(tta.trainable.shapes) == {f"model.norms.{name}" for name in names}
    source = copy.deepcopy(tta.model.state_dict())
    assert tta(draw(1, shift=1.0)).updated
    after = tta.model.state_dict()
    assert all(not torch.equal(source[f"norms.{n}"], after[f"norms.{n}"]) for n in names)
    tta.reset()
    assert all(torch.equal(value, source[name]) for name, value in tta.model.state_dict().items())


def test_another_librarys_norm_is_known_by_its_name():
    class T5LayerNorm(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(5))

        def forward(self, value):
            return value * torch.rsqrt(value.square().mean(-1, keepdim=True)) * self.weight

    tta = dasp.adapt(Pair(T5LayerNorm), "tent")
    assert tta.trainable.shapes == {f"model.norms.{n}.weight": (5,) for n in Pair.modalities}


def test_batch_norms_do_as_the_published_tent():
    """A plain Tent: batch statistics and no others, Adam on the affine parameters."""
    model = pair()
    twin = copy.deepcopy(model).train()
    for module in twin.modules():
        if isinstance(module, nn.BatchNorm1d):
            module.track_running_stats, module.running_mean, module.running_var = False, None, None
    optimizer = torch.optim.Adam(twin.norms.parameters(), lr=1e-2)
    tta = dasp.adapt(model, "tent", lr=1e-2)
    for seed in range(6):
        inputs = draw(seed, shift=0.5)
        logits = twin(inputs)
        torch.testing.assert_close(tta(inputs).logits, logits.detach(), atol=1e-6, rtol=0)
        optimizer.zero_grad()
        entropy(logits).mean().backward()
        optimizer.step()


@pytest.mark.parametrize("method", OPTIONS)
def test_running_statistics_follow_each_batch_once_by_the_layers_momentum(method):
    model = pair()
    before = statistics(model)
    tta = dasp.adapt(model, method, **OPTIONS[method], steps=2, predict="after")
    inputs = draw(1, shift=1.0)
    tta(inputs)
    for name, value in inputs.items():
        mean = 0.9 * before[f"norms.{name}.running_mean"] + 0.1 * value.mean(dim=(0, 2))
        torch.testing.assert_close(model.norms[name].running_mean, mean)
        seen = before[f"norms.{name}.num_batches_tracked"] + 1
        assert model.norms[name].num_batches_tracked == seen


def test_frozen_calls_see_batch_statistics_and_move_none():
    tta = dasp.adapt(pair(), "tent", lr=1e-2)
    tta(draw(1, shift=1.0))
    before = statistics(tta.model)
    with tta.frozen():
        first = tta(draw(2, shift=1.0)).logits
    tta.alone(draw(2, shift=1.0))
    after = statistics(tta.model)
    assert all(torch.equal(value, after[name]) for name, value in before.items())
    assert torch.equal(tta(draw(2, shift=1.0)).logits, first)


@pytest.mark.parametrize("kind", [Pair, Flat])
def test_a_single_sample_is_normalised_by_the_running_statistics_and_moves_none(kind):
    tta = dasp.adapt(pair(kind), "tent", lr=1e-2)
    tta(draw(1, shift=1.0))
    before, alone = statistics(tta.model), draw(2, samples=1, shift=1.0)
    expected = tta.model.eval()(alone).detach()
    with tta.frozen():
        torch.testing.assert_close(tta(alone).logits, expected)
    outcome = tta(alone)
    torch.testing.assert_close(outcome.logits, expected)
    assert outcome.updated
    assert all(torch.equal(value, before[n]) for n, value in statistics(tta.model).items())


def test_statistics_are_saved_loaded_and_kept_from_rejected_batches(tmp_path):
    model = pair()
    tta, other = dasp.adapt(model, "tent"), dasp.adapt(copy.deepcopy(model), "tent")
    tta(draw(1, shift=1.0))
    before = statistics(model)
    bad = draw(2)
    bad["audio"][0] = torch.nan
    assert tta(bad).rejected
    assert all(torch.equal(value, before[n]) for n, value in statistics(model).items())
    tta.save(tmp_path / "state.safetensors")
    other.load(tmp_path / "state.safetensors")
    assert all(torch.equal(value, before[n]) for n, value in statistics(other.model).items())


def test_a_model_adapted_again_has_its_source_statistics():
    model = pair()
    source = statistics(model)
    tta = dasp.adapt(model, "tent")
    tta(draw(1, shift=1.0))
    del tta
    gc.collect()
    dasp.adapt(model, "dasp")
    assert all(torch.equal(value, source[n]) for n, value in statistics(model).items())


@pytest.mark.parametrize("method", ["source", "dasp"])
def test_methods_that_train_no_norms_leave_them_in_evaluation_mode(method):
    model = pair()
    expected, before = model(draw(1)).detach(), statistics(model)
    torch.testing.assert_close(dasp.adapt(model, method)(draw(1)).logits, expected)
    assert all(torch.equal(value, before[n]) for n, value in statistics(model).items())


def test_fitting_eata_moves_no_statistics():
    tta = dasp.adapt(pair(), "eata")
    before = statistics(tta.model)
    tta.fit([draw(1), draw(2, samples=1)])
    assert all(torch.equal(value, before[n]) for n, value in statistics(tta.model).items())
