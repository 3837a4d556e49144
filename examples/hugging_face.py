"""Adapt a pair of Hugging Face encoders (`transformers`): AST for sound, ViT for frames.

    .venv/bin/pip install -c constraints.txt -e . transformers
    .venv/bin/python examples/hugging_face.py

It runs offline: both encoders are small and have random weights. For your own, use
`ASTModel.from_pretrained(...)` and `ViTModel.from_pretrained(...)` in `build`, and train the joint
model on your classes.
"""

import torch
from torch import nn
from transformers import ASTConfig, ASTModel, ViTConfig, ViTModel
from transformers.modeling_outputs import SequenceClassifierOutput

import dasp

CLASSES = 10
SMALL = {"num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 96}


class SoundAndSight(nn.Module):
    """Two encoders, joined by concatenation: an ordinary model, written for nothing else."""

    def __init__(self, sound: nn.Module, sight: nn.Module) -> None:
        super().__init__()
        self.sound, self.sight = sound, sight
        width = sound.config.hidden_size + sight.config.hidden_size
        self.mix = nn.Sequential(nn.Linear(width, 48), nn.GELU(), nn.LayerNorm(48))
        self.classifier = nn.Linear(48, CLASSES)

    def forward(self, input_values, pixel_values):
        """Classify what the processors return: sound (B, 96, 32), frames (B, 3, 32, 32)."""
        sound = self.sound(input_values=input_values).pooler_output
        sight = self.sight(pixel_values=pixel_values).last_hidden_state.mean(dim=1)
        logits = self.classifier(self.mix(torch.cat([sound, sight], dim=1)))
        return SequenceClassifierOutput(logits=logits)


def build() -> SoundAndSight:
    """Make the model with random weights."""
    torch.manual_seed(0)
    sound = ASTModel(ASTConfig(hidden_size=32, max_length=96, num_mel_bins=32, **SMALL))
    sight = ViTModel(ViTConfig(hidden_size=40, image_size=32, patch_size=8, **SMALL))
    return SoundAndSight(sound, sight).eval()


def main() -> None:
    model = build()
    clean = {"audio": torch.randn(32, 96, 32), "video": torch.randn(32, 3, 32, 32)}
    wrapped = dasp.wrap(
        model, encoders={"audio": "sound", "video": "sight"}, head="classifier", inputs=clean
    )
    tta = dasp.adapt(wrapped, "dasp", delta=0.0)  # flags the more redundant one at any gap
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
