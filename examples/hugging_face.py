"""Adapt a pair of Hugging Face encoders (`transformers`): AST for sound, ViT for frames.

    .venv/bin/pip install -c constraints.txt -e . transformers
    .venv/bin/python examples/hugging_face.py

It runs offline: both encoders are small and have random weights. For your own, use
`ASTModel.from_pretrained(...)` and `ViTModel.from_pretrained(...)` in `build`, and train the fusion
on your classes, with both sensors together and with each one alone.
"""

import torch
from torch import nn
from transformers import ASTConfig, ASTModel, ViTConfig, ViTModel

import dasp

WIDTH, CLASSES = 48, 10
SMALL = {"num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 96}


class SoundAndSight(nn.Module):
    """Two encoders, a linear map of each to a common width, and a fusion of one or both."""

    modalities, embed_dim, num_classes = ("audio", "video"), WIDTH, CLASSES

    def __init__(self, sound: nn.Module, sight: nn.Module) -> None:
        super().__init__()
        self.encoders = nn.ModuleDict({"audio": sound, "video": sight})
        self.maps = nn.ModuleDict(
            {name: nn.Linear(e.config.hidden_size, WIDTH) for name, e in self.encoders.items()}
        )
        self.mix = nn.TransformerEncoderLayer(WIDTH, 4, 96, 0.0, batch_first=True, norm_first=True)
        self.head = nn.Linear(WIDTH, CLASSES)

    def encode(self, inputs):
        """Encode sound (B, 96, 32) and frames (B, 3, 32, 32) to tokens (B, N, WIDTH)."""
        return {
            name: self.maps[name](self.encoders[name](value).last_hidden_state)
            for name, value in inputs.items()
        }

    def fuse(self, tokens):
        embedding = self.mix(torch.cat(list(tokens.values()), dim=1)).mean(dim=1)
        return dasp.Fused(embedding, self.head(embedding))


def build() -> SoundAndSight:
    """Make the model with random weights."""
    torch.manual_seed(0)
    sound = ASTModel(ASTConfig(hidden_size=32, max_length=96, num_mel_bins=32, **SMALL))
    sight = ViTModel(ViTConfig(hidden_size=40, image_size=32, patch_size=8, **SMALL))
    return SoundAndSight(sound, sight).eval()


def main() -> None:
    model = build()
    clean = {"audio": torch.randn(32, 96, 32), "video": torch.randn(32, 3, 32, 32)}
    dasp.check_model(model, clean)  # raises an error if the model does not fit
    tta = dasp.adapt(model, "dasp", delta=0.0)  # flags the more redundant one at any gap
    print(str(tta.trainable).splitlines()[0])
    for name, inputs in {
        "clean": clean,
        "sound muted": clean | {"audio": 0 * clean["audio"]},
    }.items():
        out = tta(inputs)
        scores = {sensor: round(score, 2) for sensor, score in out.diagnosis.scores.items()}
        print(f"{name}: redundancy {scores}, biased {set(out.diagnosis.biased)}, {out.updated=}")
    tta.reset()


if __name__ == "__main__":
    main()
