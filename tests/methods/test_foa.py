"""The parts of FOA that the figures of whole runs do not show."""

import numpy as np
import pytest
import torch

import dasp
from dasp.core import extras
from dasp.core.errors import DataError, InputError, StateError
from dasp.methods.foa import Search, foa_fitness
from dasp.models import Toy
from dasp.streams.synthetic import SyntheticWorld


def fitted(**options):
    tta = dasp.adapt(Toy(depth=1, seed=1), "foa", **options)
    tta.fit([SyntheticWorld().draw(32, seed=1).inputs])
    return tta


def test_fitness_and_search_agree(reference_model, reference_batches, figures):
    expected = figures("foa")
    tta = dasp.adapt(reference_model, "foa")
    method = tta.method
    method.best.copy_(expected["init.prompts"])
    tta.fit([reference_batches[0], reference_batches[5]])
    torch.testing.assert_close(method.mean, expected["source.mean"], atol=1e-5, rtol=0)
    torch.testing.assert_close(method.std, expected["source.std"], atol=1e-5, rtol=0)
    for i, batch in enumerate(reference_batches):
        if i < 3:
            asked = expected[f"candidates{i}"].reshape(27, *method.best.shape)
            candidates = torch.cat([asked, method.best[None]])
            with torch.no_grad():
                fitness, _ = method._try(reference_model.embed(batch), candidates)
            torch.testing.assert_close(fitness, expected[f"fitness{i}"], atol=1e-3, rtol=1e-5)
        tta(batch)
        torch.testing.assert_close(method.best, expected[f"best{i}"], atol=1e-5, rtol=0)
        torch.testing.assert_close(method.search.mean.float(), expected[f"es_mean{i}"])
        assert float(method.search.counts[0]) == pytest.approx(float(expected[f"es_sigma{i}"]))


def test_the_search_is_that_of_the_package_though_rebuilt_at_every_step():
    import cma

    random = np.random.RandomState(7)
    options = {"popsize": 6, "randn": random.randn, "seed": np.nan, "verbose": -9}
    theirs, ours = cma.CMAEvolutionStrategy([0.0] * 10, 1.0, options), Search(10, 6, 7)
    best = np.full(10, 0.1)  # told, never asked
    for _ in range(40):
        asked = np.stack(theirs.ask())
        np.testing.assert_allclose(ours.ask().numpy(), asked, atol=1e-9)
        told = np.concatenate([asked, best[None]])
        values = ((told - 1) ** 2 * np.arange(1, 11)).sum(axis=1)
        theirs.tell(list(told), values.tolist())
        ours.tell(torch.from_numpy(told), torch.from_numpy(values))
        best = told[values.argmin()].astype(np.float32).astype(np.float64)
    assert values.min() < 1


def test_numpys_own_generator_is_left_alone(batches):
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    fitted(population=4)(batches[0])
    assert (np.random.get_state()[1] == before).all()  # noqa: NPY002


def test_fitness_counts_entropy_and_distance():
    features = torch.tensor([[0.0, 2.0], [2.0, 2.0]])
    logits = torch.zeros(2, 4)
    mean, std = torch.tensor([1.0, 0.0]), torch.tensor([2.0**0.5, 0.0])
    found = foa_fitness(logits, features, mean, std, weight=0.4)
    assert float(found) == pytest.approx(2 * np.log(4) + 0.4 * 4 * 2 / 64)


def test_what_cannot_teach_is_predicted(batches, same_state):
    tta = fitted(population=4)
    tta(batches[0])
    before = tta.memory.capture()
    for batch in (
        {name: value[:1] for name, value in batches[1].items()},
        {"video": batches[1]["video"]},
    ):
        assert torch.isfinite(tta(batch).logits).all()
    assert same_state(before, tta.memory.capture())


def test_what_it_needs_it_asks_for(batches, monkeypatch):
    with pytest.raises(StateError, match="fit"):
        dasp.adapt(Toy(depth=1), "foa")(batches[0])
    with pytest.raises(InputError, match="at least 2"):
        dasp.adapt(Toy(depth=1), "foa").fit([{n: v[:1] for n, v in batches[0].items()}])

    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr(extras, "import_module", missing)
    with pytest.raises(DataError, match=r"dasp-tta\[foa\]"):
        dasp.adapt(Toy(depth=1), "foa")


def test_a_search_in_many_dimensions_goes_on():
    search = Search(1200, 5, 1)
    for _ in range(3):
        asked = search.ask()
        search.tell(asked, asked.square().sum(dim=1))
    assert len(search.counts)
