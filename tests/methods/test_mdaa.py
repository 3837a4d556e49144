"""The parts of MDAA that the figures of whole runs do not show."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import dasp
from dasp.core.errors import InputError, OptionError, StateError
from dasp.methods.mdaa import AnalyticClassifier, rank_weights, soft_labels
from dasp.models import Toy
from dasp.streams.synthetic import SyntheticWorld

LETTERS = {"audio": "a", "video": "v", "joint": "x"}


def fitted(**options):
    tta = dasp.adapt(Toy(seed=1), "mdaa", buffer=20, **options)
    tta.fit([SyntheticWorld().draw(64, seed=1).inputs])
    return tta


def test_the_start_and_every_step_agree(reference_model, reference_batches, figures):
    expected = figures("mdaa")
    weight = expected["source.class_weight"].tolist()
    tta = dasp.adapt(reference_model, "mdaa", buffer=64, class_weight=weight)
    classifiers = {letter: tta.method.classifiers[name] for name, letter in LETTERS.items()}
    for letter, classifier in classifiers.items():
        for part in ("expand_weight", "expand_bias", "head_bias"):
            key = f"init.{letter}.{part.replace('_', '.')}"
            getattr(classifier, part).copy_(expected[key])
    tta.fit([reference_batches[i] for i in expected["source.batches"].tolist()])
    for letter, classifier in classifiers.items():
        torch.testing.assert_close(classifier.R, expected[f"init.{letter}.R"], atol=1e-5, rtol=0)
    for i, batch in enumerate(reference_batches):
        with torch.no_grad():
            features, _ = tta.method._features(reference_model.encode(batch))
            found, _ = tta.method._judged(features)
        for name, letter in LETTERS.items():
            torch.testing.assert_close(
                found[name], expected[f"prob_{letter}{i}"], atol=1e-5, rtol=0
            )
        tta(batch)


@given(st.integers(0, 2**31), st.integers(1, 6), st.integers(1, 6))
def test_updating_is_solving_for_all_rows_at_once(seed, first, second):
    generator = torch.Generator().manual_seed(seed)
    like = torch.empty(0, dtype=torch.float64)
    x, y = (
        torch.randn(first + second, width, generator=generator, dtype=torch.float64)
        for width in (4, 3)
    )
    ones = torch.ones(first + second, dtype=torch.float64)
    one, all_at_once = (
        AnalyticClassifier(4, 8, 3, torch.Generator().manual_seed(seed), like) for _ in range(2)
    )
    one.solve(x[:first], y[:first], ones[:first], gamma=2.0)
    one.head_weight.div_(0.9)  # the release's factor
    one.update(x[first:], y[first:])
    all_at_once.solve(x, y, ones, gamma=2.0)
    torch.testing.assert_close(one.R, all_at_once.R)
    torch.testing.assert_close(0.9 * one.head_weight, all_at_once.head_weight)


def test_soft_labels_follow_the_ranking():
    weights = [weight * 12 for weight in rank_weights(7)]
    assert [round(weight) for weight in weights] == [3, 2, 2, 2, 1, 1, 1]
    p = torch.tensor([[0.1, 0.6, 0.3]])
    torch.testing.assert_close(soft_labels(p, 2), torch.tensor([[0, 1 / 1.7, 0.7 / 1.7]]))


def test_given_labels_and_class_weights_change_the_start(batches):
    clean = SyntheticWorld().draw(64, seed=1)
    given_labels = dasp.adapt(Toy(seed=1), "mdaa", buffer=20, labels="given")
    with pytest.raises(InputError, match="source_labels"):
        given_labels.fit([clean.inputs])
    given_labels.method.source_labels = clean.labels
    given_labels.fit([clean.inputs])
    starts = [
        tta.method.classifiers["joint"].head_weight.clone()
        for tta in (fitted(), given_labels, fitted(class_weight=[1.0, 2, 1, 1, 1, 1, 1, 1]))
    ]
    assert not torch.equal(starts[0], starts[1])
    assert not torch.equal(starts[0], starts[2])


def test_only_less_confident_classifiers_learn(batches):
    tta = fitted(theta=1.0)
    before = tta.memory.capture().tensors
    tta(batches[0])
    assert all(torch.equal(v, tta.memory.capture().tensors[n]) for n, v in before.items())


def test_what_it_needs_it_asks_for(batches):
    with pytest.raises(StateError, match="fit"):
        dasp.adapt(Toy(), "mdaa", buffer=20)(batches[0])
    with pytest.raises(OptionError, match="classes"):
        dasp.adapt(Toy(), "mdaa", alpha=9)
    with pytest.raises(OptionError, match="class_weight"):
        dasp.adapt(Toy(), "mdaa", class_weight=[1.0])
    with pytest.raises(InputError, match="no source batch"):
        dasp.adapt(Toy(), "mdaa", buffer=20).fit([])
