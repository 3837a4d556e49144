"""2LTTA: an entropy within one modality's tokens, and diverse predictions after the fusion."""

import math
from collections.abc import Iterable

from torch import Tensor, nn

from dasp.core.contract import HasFusionQkv, HasLayers
from dasp.core.errors import ContractError, OptionError, unknown_name
from dasp.core.types import Inputs, Step
from dasp.methods.base import METHODS, Method, not_negative, one_of, whole
from dasp.methods.losses import entropy, entropy_of_mean
from dasp.methods.norms import norms_of

PROJECTION = "attn.proj.weight"


def token_entropy(tokens: Tensor) -> Tensor:
    """Return the entropy over tokens of each channel's softmax: (B, N, D) → (B, D)."""
    log_p = tokens.log_softmax(dim=1)
    return -(log_p.exp() * log_p).sum(dim=1)


def two_level_loss(value: Tensor, logits: Tensor, margin: float, diversity: float) -> Tensor:
    """Return mean h·exp(margin·ln C − h), with a constant weight, + diversity·Σ p̄ log p̄."""
    weight = (margin * math.log(logits.shape[1]) - value).exp().detach()
    return (value * weight).mean() - diversity * entropy_of_mean(logits)


@METHODS.register("lltta")
class Lltta(Method):
    """L = mean h·exp(.4 ln C − h) + .5·Σ p̄ log p̄, on norms and attention.

    Paper: Lei and Pernkopf, "Two-Level Test-Time Adaptation in Multimodal Learning", IJCNN 2025.

    Trains the norms of all blocks, the attention's output maps of the first five blocks of
    one encoder and of the fusion, and the fusion's query, key and value maps.
    `level="tokens"` is what the release computes: h is the entropy over the tokens of that
    encoder, channel by channel. `level="prediction"` takes h of the joint prediction, as the
    words "Shannon entropy" suggest. `modality` is that encoder: None for "video", or else the last.
    Reports after the update.
    """

    version = 1
    published = "2025-06"
    sharded = "its loss uses tokens, which stay on the rank that computed them"
    tunes_encoder = True
    needs = (HasFusionQkv, HasLayers)
    default_predict = "after"

    def __init__(
        self,
        model: nn.Module,
        *,
        level: str = "tokens",
        modality: str | None = None,
        margin: float = 0.4,
        diversity: float = 0.5,
        blocks: int = 5,
        seed: int = 0,
    ) -> None:
        super().__init__(model, seed=seed)
        one_of("level", level, "tokens", "prediction")
        not_negative(margin=margin, diversity=diversity)
        whole(0, blocks=blocks)
        names = self.model.modalities
        if modality is not None and modality not in names:
            raise OptionError(unknown_name("modality", modality, names))
        self.level, self.modality, self.margin = level, modality, margin
        self.diversity, self.blocks = diversity, blocks
        self.tuned = modality or ("video" if "video" in names else names[-1])

    def trainable(self) -> Iterable[nn.Parameter]:
        """Train norms of all blocks, and some of their attention."""
        layers = self.model.layers()
        every = [*(block for own in layers.encoders.values() for block in own), *layers.fusion]
        attending = [*layers.encoders[self.tuned][: self.blocks], *layers.fusion]
        maps = [p for block in attending for n, p in block.named_parameters() if n == PROJECTION]
        if len(maps) != len(attending):
            raise ContractError(
                f"Lltta trains the attention's output map of each block, '{PROJECTION}'; blocks of "
                f"this {type(self.model).__name__} have none of that name."
            )
        return [*norms_of(every), *maps, *self.fusion_qkv()]

    def step(self, batch: Inputs) -> Step:
        """Predict; the loss has a term within one modality and one across all."""
        tokens = self.encode(batch)
        logits = self.fuse(tokens).logits
        inside = self.level == "tokens"
        value = token_entropy(tokens[self.tuned].float()) if inside else entropy(logits)
        return Step(logits, two_level_loss(value, logits, self.margin, self.diversity))
