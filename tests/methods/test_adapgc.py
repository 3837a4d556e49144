"""The parts of AdaPGC that the figures of whole runs do not show."""

import pytest
import torch
from torch import nn
from torch.distributions import MultivariateNormal

import dasp
from dasp.core.errors import StateError
from dasp.methods.adapgc import ClassGaussians, leaders, pull, symmetric_kl
from dasp.models import Toy


def head(classes=4, width=3):
    torch.manual_seed(0)
    return nn.Linear(width, classes)


def test_scores_distances_and_statistics_agree(reference_model, reference_batches, figures):
    expected = figures("adapgc")
    tta = dasp.adapt(reference_model, "adapgc", lr=2e-3)
    method = tta.method
    joint, own = method.joint, method.own
    seen = []
    joint.register_forward_hook(lambda module, given, scores: seen.append(scores.detach()))
    for i, batch in enumerate(reference_batches):
        tta(batch)
        torch.testing.assert_close(seen[i], expected[f"gda{i}"], atol=5e-4, rtol=0)
    torch.testing.assert_close(joint.mean, expected["final.mean"], atol=1e-4, rtol=0)
    torch.testing.assert_close(own["audio"].mean, expected["final.mean_a"], atol=1e-4, rtol=0)
    for gaussians, key in ((joint, "final.weight"), (own["video"], "final.weight_v")):
        torch.testing.assert_close(gaussians.log_prior.exp(), expected[key], atol=0, rtol=1e-4)
    norms = torch.stack([g.covariance.norm() for g in (joint, own["audio"], own["video"])])
    torch.testing.assert_close(norms, expected["final.cov_l2"], atol=1e-3, rtol=0)
    size = torch.cat([weight.detach().flatten() for weight in method.norms()]).norm()
    assert float(size) == pytest.approx(float(expected["final_layer_norms"]), abs=1e-4)


def test_the_prediction_before_the_update_is_the_models_own(
    reference_model, reference_batches, figures
):
    tta = dasp.adapt(reference_model, "adapgc", lr=2e-3, predict="before")
    for i, batch in enumerate(reference_batches):
        expected = figures("adapgc")[f"before{i}"]
        torch.testing.assert_close(tta(batch).logits, expected, atol=2e-5, rtol=0)


def test_scores_are_log_densities():
    gaussians, features = ClassGaussians(head()), torch.randn(5, 3)
    gaussians.update(torch.randn(7, 3), torch.rand(7, 4).softmax(dim=1))
    found = gaussians(features)
    for k in range(4):
        density = MultivariateNormal(gaussians.mean[k], gaussians.covariance[k])
        expected = density.log_prob(features) + gaussians.log_prior[k]
        torch.testing.assert_close(found[:, k], expected, atol=1e-4, rtol=1e-4)


def test_a_class_never_seen_stays_and_large_priors_are_finite():
    wide = head()
    with torch.no_grad():
        wide.weight.mul_(100)
    gaussians = ClassGaussians(wide)
    start = gaussians.mean.clone()
    p = torch.zeros(6, 4)
    p[:, 1] = 1.0
    gaussians.update(torch.randn(6, 3), p)
    assert torch.equal(gaussians.mean[[0, 2, 3]], start[[0, 2, 3]])
    assert not torch.equal(gaussians.mean[1], start[1])
    assert torch.isfinite(gaussians(torch.randn(2, 3))).all()


def test_a_covariance_that_cannot_be_factored_is_helped_or_refused():
    gaussians = ClassGaussians(head())
    gaussians.covariance[2] = -1e-7 * torch.eye(3)
    assert torch.isfinite(gaussians(torch.randn(2, 3))).all()
    gaussians.covariance[2] = -torch.eye(3)
    with pytest.raises(StateError, match="positive definite"):
        gaussians(torch.randn(2, 3))


def test_the_nearest_leads_and_the_last_of_equals():
    distances = [torch.tensor([1.0, 2.0, 1.0]), torch.tensor([2.0, 1.0, 1.0])]
    assert leaders(distances).tolist() == [0, 1, 1]
    scores = torch.randn(3, 4)
    torch.testing.assert_close(symmetric_kl(scores, scores), torch.zeros(3))


def test_a_modality_that_only_leads_has_no_gradient():
    audio, video = torch.randn(2, 5, 3).requires_grad_().unbind()
    for row, leader in ((0, torch.zeros(5)), (1, torch.ones(5))):
        own = [audio.detach().requires_grad_(), video.detach().requires_grad_()]
        gradients = torch.autograd.grad(pull(own, leader, 0.05), own, allow_unused=True)
        assert gradients[row] is None
        assert gradients[1 - row].abs().sum() > 0


def test_a_random_average_begins_apart_and_comes_back(batches):
    def gap(**options):
        tta = dasp.adapt(Toy(seed=1), "adapgc", **options)
        weight = tta.method.fusion_qkv()[0]
        found = []
        for _ in range(20):
            found.append(float((tta.method.shadow.of(weight) - weight).detach().norm()))
            tta(batches[0])
        return found

    start, *_, end = gap(ema_start="random")
    assert start > 10 * end
    assert gap()[0] == 0
