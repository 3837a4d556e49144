"""FOA: search for prompts without gradients, and shift the embedding back to its source."""

import math
from collections.abc import Iterable
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from dasp.core.contract import HasCarriedPrompts, HasLinearHead
from dasp.core.errors import InputError, StateError
from dasp.core.extras import extra
from dasp.core.types import Inputs, Prediction, Step, Tokens
from dasp.methods.base import METHODS, Method, not_negative, whole
from dasp.methods.losses import entropy

SEARCH_SEED = 2020  # of the release; `seed` is added
PATCH_INPUTS = 3 * 16**2  # of the published ViT, which sets the range of the first prompts
WORST = 1e30  # the fitness of a candidate whose prediction is not finite


def foa_fitness(
    logits: Tensor, features: Tensor, mean: Tensor, std: Tensor, weight: float
) -> Tensor:
    """Return Σ H + weight·(‖σ − std‖² + ‖μ − mean‖²)·B/64 of logits (B, C), features (B, F)."""
    apart = (features.std(dim=0) - std).square().sum() + (
        features.mean(dim=0) - mean
    ).square().sum()
    return entropy(logits).sum() + weight * apart * len(logits) / 64


class Search(nn.Module):
    """CMA-ES from mean 0 and σ 1 by the package `cma`, with its state in buffers.

    Every `ask` rebuilds the search from these numbers and every `tell` writes them back, so that
    a saved state holds nothing but numbers, no pickled object, and continues to the bit.
    """

    arrays: ClassVar[dict[str, int]] = {
        "mean": 1, "mean_old": 1, "pc": 1, "sm.C": 2, "sm.B": 2, "sm.D": 1, "adapt_sigma.ps": 1,
    }  # fmt: skip
    numbers: ClassVar[tuple[str, ...]] = (
        "sigma", "countiter", "countevals", "sm.count_tell", "sm.last_update", "sm.count_eigen",
        "adapt_sigma._ps_updated_iteration", "itereigenupdated",
    )  # fmt: skip

    counts: Tensor
    draws: Tensor

    def __init__(self, size: int, population: int, seed: int) -> None:
        super().__init__()
        self.size, self.population, self.seed = size, population, seed
        extra("cma", "foa")  # say at once if it is missing
        for name, axes in self.arrays.items():
            empty = torch.empty([0] * axes, dtype=torch.float64)
            self.register_buffer(name.replace(".", "/"), empty)
        self.register_buffer("counts", torch.empty(0, dtype=torch.float64))
        self.register_buffer("draws", torch.empty(0, dtype=torch.float64))  # the generator's state
        self._open: tuple[Any, np.random.RandomState] | None = None

    def ask(self) -> Tensor:
        """Return new candidates: (population, size)."""
        cma, random = extra("cma", "foa"), np.random.RandomState(self.seed)
        options = {
            "popsize": self.population, "randn": random.randn, "seed": np.nan,
            "verbose": -9, "verb_log": 0, "verb_disp": 0,
            # With many dimensions cma would choose a rule that carries samples between steps.
            "AdaptSigma": cma.sigma_adaptation.CMAAdaptSigmaCSA,
        }  # fmt: skip
        search = cma.CMAEvolutionStrategy([0.0] * self.size, 1.0, options)
        if len(self.counts):
            search.timer = cma.utilities.utils.ElapsedWCTime()  # else the first ask's
            for name in self.arrays:
                _set(search, name, getattr(self, name.replace(".", "/")).cpu().numpy().copy())
            for name, value in zip(self.numbers, self.counts.tolist(), strict=True):
                _set(search, name, value if name == "sigma" else int(value))
            key, (place, has_gauss, gauss) = self.draws[:-3], self.draws[-3:].tolist()
            words = key.cpu().numpy().astype(np.uint32)
            random.set_state(("MT19937", words, int(place), int(has_gauss), gauss))
        self._open = search, random
        return torch.from_numpy(np.stack(search.ask()))

    def tell(self, candidates: Tensor, fitness: Tensor) -> None:
        """Learn how good candidates (K, size) were; the lower, the better."""
        assert self._open is not None
        (search, random), self._open = self._open, None
        search.tell(list(candidates.double().cpu().numpy()), fitness.double().tolist())
        device = self.counts.device
        for name in self.arrays:
            value = torch.from_numpy(np.array(_get(search, name), dtype=np.float64))
            setattr(self, name.replace(".", "/"), value.to(device))
        counts = [float(_get(search, name)) for name in self.numbers]
        self.counts = torch.tensor(counts, dtype=torch.float64, device=device)
        _, words, *rest = random.get_state(legacy=True)
        assert not isinstance(words, str)
        self.draws = torch.tensor([*words.tolist(), *rest], dtype=torch.float64, device=device)


def _get(search: Any, path: str) -> Any:
    for part in path.split("."):
        search = getattr(search, part)
    return search


def _set(search: Any, path: str, value: Any) -> None:
    *owners, name = path.split(".")
    setattr(_get(search, ".".join(owners)) if owners else search, name, value)


@METHODS.register("foa")
class Foa(Method):
    """Search for prompts whose predictions are sure and whose features look like the source's.

    Paper: Niu et al., "Test-Time Model Adaptation with Only Forward Passes", ICML 2024.

    Each batch tries `population` candidates of CMA-ES and the best prompts of the last batch, a
    forward pass each, by `foa_fitness`. The best one's prediction is reported, after its embedding
    is shifted by how far the recent mean embedding is from the source's. For this model: `prompts`
    per modality in front of each encoder's tokens, carried to the end and left out of every mean.

    `fit(source)` is required: mean and spread of features without prompts. Set the first prompts
    by `tta.method.best` (modalities·prompts, D) before the first batch. The package `cma` is the
    extra `foa`. A batch of one sample has no spread: it is predicted and teaches nothing, as does
    one that lacks a modality.
    """

    version = 1
    published = "2024-07"
    sharded = "it compares statistics of features, which stay on their rank"
    tunes_encoder = True
    needs = (HasCarriedPrompts, HasLinearHead)
    needs_source = True
    best: Tensor
    mean: Tensor
    std: Tensor
    history: Tensor

    def __init__(
        self,
        model: nn.Module,
        *,
        prompts: int = 3,
        population: int = 27,
        fitness_weight: float = 0.4,
        seed: int = 0,
    ) -> None:
        super().__init__(model, seed=seed)
        whole(prompts=prompts)
        whole(2, population=population)
        not_negative(fitness_weight=fitness_weight)
        self.prompts, self.population, self.fitness_weight = prompts, population, fitness_weight
        rows, width = len(self.model.modalities) * prompts, self.one_width()
        self.search = Search(rows * width, population, SEARCH_SEED + seed)
        bound = math.sqrt(6 / (PATCH_INPUTS + width))
        start = torch.empty(rows, width).uniform_(-bound, bound, generator=self.generator)
        like = next(self.model.parameters(), torch.empty(0)).detach()
        self.register_buffer("best", start.to(like))
        self.register_buffer("mean", like.new_empty(0))  # (F,) after fit
        self.register_buffer("std", like.new_empty(0))  # (F,) after fit
        self.register_buffer("history", like.new_full((width,), torch.nan))  # mean embedding

    @property
    def fitted(self) -> bool:
        """Whether there are source statistics."""
        return len(self.mean) > 0

    @torch.no_grad()
    def fit(self, source: Iterable[Inputs]) -> None:
        """Keep mean and spread of the features of clean source batches."""
        none = self.best[:0]
        features = [self._run(self.model.embed(batch), none)[1] for batch in source]
        count = sum(map(len, features))
        if count < 2:
            raise InputError(f"fit() got {count} source samples: give at least 2, better 32.")
        joined = torch.cat(features)
        self.mean, self.std = joined.mean(dim=0), joined.std(dim=0)

    @torch.no_grad()
    def step(self, batch: Inputs) -> Step:
        """Try all candidates, report the best one, and tell the search."""
        if not self.fitted:
            raise StateError(
                "Foa needs source statistics: call tta.fit([inputs]) with about 32 clean "
                "training samples before the first batch."
            )
        size = len(next(iter(batch.values())))
        if len(batch) < len(self.model.modalities) or size < 2:
            why = "Foa searches with all modalities of at least 2 samples"
            return Step(self.predict(batch).logits, skipped=why)
        embedded = self.model.embed(batch)
        asked = self.search.ask().reshape(self.population, *self.best.shape).to(self.best)
        candidates = torch.cat([asked, self.best[None]])
        fitness, embeddings = self._try(embedded, candidates)
        chosen = int(fitness.argmin())
        logits = self._shifted(embeddings[chosen])
        self.best.copy_(candidates[chosen])
        average = embeddings.mean(dim=(0, 1))
        first = bool(torch.isnan(self.history).any())
        self.history.copy_(average if first else 0.9 * self.history + 0.1 * average)
        self.search.tell(candidates.flatten(1), fitness)
        return Step(logits, skipped="Foa searches for prompts and trains no weights")

    @torch.no_grad()
    def predict(self, batch: Inputs) -> Prediction:
        """Predict with the best prompts so far; shift only what has all modalities."""
        logits, _, embedding = self._run(self.model.embed(batch), self.best)
        whole_batch = len(batch) == len(self.model.modalities)
        return Prediction(self._shifted(embedding) if whole_batch else logits)

    def _try(self, embedded: Tokens, candidates: Tensor) -> tuple[Tensor, Tensor]:
        """Return the fitness of each candidate (K,) and its embeddings (K, B, D)."""
        fitness, embeddings = [], []
        for prompts in candidates:
            logits, features, embedding = self._run(embedded, prompts)
            value = foa_fitness(logits, features, self.mean, self.std, self.fitness_weight)
            fitness.append(value.nan_to_num(WORST, WORST))
            embeddings.append(embedding)
        return torch.stack(fitness), torch.stack(embeddings)

    def _run(self, embedded: Tokens, prompts: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return logits (B, C), features of all layers (B, F) and embedding (B, D)."""
        count = len(prompts) // len(self.model.modalities)
        own = {n: prompts[i * count :][:count] for i, n in enumerate(self.model.modalities)}
        layered = self.model.encode_carrying(embedded, own)
        fused = self.model.fuse_carrying({n: layer.tokens for n, layer in layered.items()}, count)
        embedding = fused.embedding.to(self.best)
        parts = [own for name in layered for own in layered[name].features.to(self.best)]
        return fused.logits.to(self.best), torch.cat([*parts, embedding], dim=1), embedding

    def _shifted(self, embedding: Tensor) -> Tensor:
        """Return the head's logits of embeddings moved back by the drift of their mean."""
        if not torch.isnan(self.history).any():
            embedding = embedding + (self.mean[-embedding.shape[1] :] - self.history)
        before, linear = self.model.linear_head()
        logits: Tensor = linear(before(embedding)).to(self.best)
        return logits
