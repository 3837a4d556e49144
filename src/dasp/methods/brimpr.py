"""BriMPR: prompts align each modality with its source statistics, and modalities together."""

from collections.abc import Iterable, Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dasp.core.contract import HasOwnNorms, HasPrompts
from dasp.core.errors import ContractError, InputError, StateError
from dasp.core.types import Inputs, Layered, Step, Tokens
from dasp.methods.base import METHODS, Method, positive, whole


class SourceMoments(nn.Module):
    """Mean and unbiased std of features over source samples, each (L, D); NaN until set."""

    mean: Tensor
    std: Tensor

    def __init__(self, layers: int, dim: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.full((layers, dim), torch.nan))
        self.register_buffer("std", torch.full((layers, dim), torch.nan))

    def set(self, features: Tensor) -> None:
        """Take the moments of features (L, B, D)."""
        self.mean.copy_(features.mean(dim=1))
        self.std.copy_(features.std(dim=1))

    def forward(self, features: Tensor) -> Tensor:
        """Return the mean over layers of ‖μ − mean‖ + ‖σ − std‖, of features (L, B, D): ()."""
        means: Tensor = (features.mean(dim=1) - self.mean).norm(dim=1)
        spreads: Tensor = (features.std(dim=1) - self.std).norm(dim=1)
        return (means + spreads).mean()


class Prompts(nn.Module):
    """Prompts of one modality, P before each of L layers: (L, P, D)."""

    def __init__(self, shape: tuple[int, int, int], generator: torch.Generator) -> None:
        super().__init__()
        self.values = nn.Parameter(torch.empty(shape).uniform_(-1e-4, 1e-4, generator=generator))


def drop_half(tokens: Tensor, generator: torch.Generator) -> Tensor:
    """Keep a random half of each sample's tokens: (B, N, D) → (B, max(N // 2, 1), D)."""
    batch, count, dim = tokens.shape
    order = torch.rand(batch, count, generator=generator).argsort(dim=1)
    kept = order[:, : max(count // 2, 1)].to(tokens.device)
    return tokens.gather(1, kept[:, :, None].expand(-1, -1, dim))


def teacher_temperature(distance: Tensor) -> Tensor:
    """Return 1 + .2/(1 + e^(5 − D)): softer the further the joint embedding is from its source."""
    return 1 + 0.2 * torch.sigmoid(distance - 5)


def contrast(first: Tensor, second: Tensor, temperature: float) -> Tensor:
    """Return the symmetric InfoNCE on cosines of (B, D); equal rows belong together."""
    cosines = F.normalize(first, dim=1) @ F.normalize(second, dim=1).T
    own = torch.arange(len(cosines), device=cosines.device)
    scores = cosines / temperature
    return (F.cross_entropy(scores, own) + F.cross_entropy(scores.T, own)) / 2


@METHODS.register("brimpr")
class Brimpr(Method):
    """L = ALIGN + CMER + IICL, on prompts before each layer of both encoders.

    Paper: Li and Feng, "Bridging Modalities via Progressive Re-alignment for Multimodal Test-Time
    Adaptation", AAAI 2026. Settings as in the authors' code.

    ALIGN: each modality's distance D to its source moments (`SourceMoments`), of all layers.
    CMER: the joint prediction, softened by `teacher_temperature`, teaches those in which half of
    one modality's tokens is missing; the weight is larger if that modality is near its source.
    IICL: `contrast` between the modalities' embeddings, each the mean of a pass with the shared
    norms and one with its own. `fit(source)` must be given clean training samples first (the paper
    uses 32). One sample has no spread, so a batch of one teaches nothing.
    """

    version = 1
    published = "2026-01"
    sharded = "it contrasts each sample with all others, whose embeddings stay on their rank"
    tunes_encoder = True
    needs = (HasPrompts, HasOwnNorms)
    needs_source = True
    exactly_two_modalities = True

    def __init__(
        self, model: nn.Module, *, prompts: int = 10, temperature: float = 0.07, seed: int = 0
    ) -> None:
        super().__init__(model, seed=seed)
        whole(prompts=prompts)
        positive(temperature=temperature)
        self.prompts, self.temperature = prompts, temperature
        dim, self.moments = self.one_width(), nn.ModuleDict()
        for name, layers in self.model.encoder_depth().items():
            if layers < 1:
                raise ContractError(f"Brimpr needs layers to prompt: '{name}' has {layers}.")
            made = Prompts((layers, prompts, dim), self.generator)
            self.adapters[name] = self.module_like_model(made)
            self.moments[name] = self.module_like_model(SourceMoments(layers, dim))
        self.joint_moments = self.module_like_model(SourceMoments(1, dim))

    @property
    def fitted(self) -> bool:
        """Whether there are source statistics."""
        return not bool(torch.isnan(self.joint_moments.mean).any())

    def adapted_tokens(self, batch: Inputs) -> dict[str, Tensor]:
        """Encode with the prompts."""
        return _tokens(self._prompted(self._embed(batch)))

    @torch.no_grad()
    def fit(self, source: Iterable[Inputs]) -> None:
        """Keep the moments of clean source batches, of all their samples together."""
        features: dict[str, list[Tensor]] = {name: [] for name in self.model.modalities}
        joint: list[Tensor] = []
        for batch in source:
            layered = self._prompted(self._embed(batch), prompts=False)
            joint.append(self.fuse(_tokens(layered)).embedding)
            for name, own in layered.items():
                features[name].append(own.features)
        count = sum(map(len, joint))
        if count < 2:
            raise InputError(f"fit() got {count} source samples: give at least 2, better 32.")
        for name, parts in features.items():
            self.moments[name].set(torch.cat(parts, dim=1))  # type: ignore[operator]
        self.joint_moments.set(torch.cat(joint)[None])

    def step(self, batch: Inputs) -> Step:
        """Predict with the prompts as they are; the loss has three terms."""
        if not self.fitted:
            raise StateError(
                "Brimpr needs source statistics: call tta.fit([inputs]) with about 32 clean "
                "training samples before the first batch."
            )
        embedded = self._embed(batch)
        layered = self._prompted(embedded)
        tokens = _tokens(layered)
        with torch.no_grad():
            joint = self.fuse(tokens)
        if len(joint.logits) < 2:
            return Step(joint.logits, skipped="one sample has no spread to align")
        distances = {name: self.moments[name](own.features) for name, own in layered.items()}
        align = torch.stack(list(distances.values())).sum()
        warmth = teacher_temperature(self.joint_moments(joint.embedding[None]))
        target = (joint.logits / warmth).softmax(dim=1)
        halves = {name: drop_half(own, self.generator) for name, own in embedded.items()}
        missing = _tokens(self._prompted(halves))
        taught = []
        for name, distance in distances.items():
            logits = self.fuse({**tokens, name: missing[name]}).logits
            near = 1 - distance.detach() / align.detach().clamp_min(1e-12)
            taught.append(near * F.cross_entropy(logits, target))
        first, second = self._views(tokens)
        loss = align + torch.stack(taught).sum() + contrast(first, second, self.temperature)
        return Step(joint.logits, loss)

    def _views(self, tokens: Tokens) -> list[Tensor]:
        """Embed each modality alone, halfway between the shared norms and its own: (B, D) each."""
        return [
            (self.fuse(alone).embedding + self.fuse(alone, own_norm=True).embedding) / 2
            for alone in ({name: own} for name, own in tokens.items())
        ]

    def _embed(self, batch: Inputs) -> dict[str, Tensor]:
        embedded: dict[str, Tensor] = self.model.embed({n: batch[n] for n in self.model.modalities})
        return embedded

    def _prompted(self, embedded: Tokens, prompts: bool = True) -> dict[str, Layered]:
        own = {name: made.values for name, made in self.adapters.items()} if prompts else {}
        layered: dict[str, Layered] = self.model.encode_prompted(embedded, own)
        return layered


def _tokens(layered: Mapping[str, Layered]) -> dict[str, Tensor]:
    return {name: own.tokens for name, own in layered.items()}
