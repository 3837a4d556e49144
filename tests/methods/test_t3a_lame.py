"""The parts of T3A and LAME that the figures of whole runs do not show."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import dasp
from dasp.core.errors import ContractError
from dasp.methods.lame import affinity, lame
from dasp.methods.t3a import lowest_per_class, prototype_scores
from dasp.models import Toy


def test_supports_agree_with_the_figures(reference_model, reference_batches, figures):
    expected = figures("t3a")
    tta, counts = dasp.adapt(reference_model, "t3a"), []
    for batch in reference_batches:
        tta(batch)
        counts.append(len(tta.method.supports))
    assert counts == expected["supports"].tolist()
    found, theirs = tta.method.labels.argsort(stable=True), expected["final.labels"]
    assert torch.equal(tta.method.labels[found], theirs.sort(stable=True).values)
    torch.testing.assert_close(
        tta.method.supports.sum(dim=0), expected["final.supports"].sum(dim=0), atol=1e-4, rtol=0
    )


@given(st.lists(st.tuples(st.integers(0, 3), st.floats(0, 5)), min_size=1), st.integers(1, 4))
def test_the_lowest_of_each_class_stay_in_their_order(rows, k):
    labels = torch.tensor([label for label, _ in rows])
    values = torch.tensor([value for _, value in rows])
    kept = lowest_per_class(labels, values, k).tolist()
    assert kept == sorted(kept)
    for label in range(4):
        own = [i for i in range(len(rows)) if labels[i] == label]
        best = sorted(own, key=lambda i: (float(values[i]), i))[:k]
        assert [i for i in kept if labels[i] == label] == sorted(best)


def test_a_class_without_supports_scores_zero():
    features = torch.randn(3, 4)
    scores = prototype_scores(features, torch.randn(2, 4), torch.tensor([0, 2]), 4)
    assert (scores[:, [1, 3]] == 0).all()
    assert (scores[:, [0, 2]] != 0).all()


def test_the_kernel_agrees_with_the_figures(reference_model, reference_batches, figures):
    with torch.no_grad():
        fused = reference_model.fuse(reference_model.encode(reference_batches[0]))
        kernel = affinity(reference_model.linear_head()[0](fused.embedding), "rbf")
    torch.testing.assert_close(kernel, figures("lame")["kernel0"], atol=1e-5, rtol=0)


def test_each_sample_has_five_neighbours_beside_itself():
    kernel = affinity(torch.randn(9, 4), "knn")
    assert (kernel.sum(dim=1) == 5).all()
    assert (kernel.diagonal() == 0).all()


@pytest.mark.parametrize("kernel", ["rbf", "knn", "linear"])
@pytest.mark.parametrize("size", [1, 2, 4])
def test_small_batches_and_equal_samples_give_probabilities(kernel, size):
    features = torch.ones(size, 3)
    found = lame(torch.randn(size, 5), affinity(features, kernel))
    torch.testing.assert_close(found.sum(dim=1), torch.ones(size))


def test_a_model_without_a_linear_head_is_refused_by_t3a_and_taken_by_lame(batches):
    class Closed(Toy):
        linear_head = None

    with pytest.raises(ContractError, match=r"linear_head\(\)"):
        dasp.adapt(Closed(), "t3a")
    assert torch.isfinite(dasp.adapt(Closed(), "lame")(batches[0]).logits).all()
