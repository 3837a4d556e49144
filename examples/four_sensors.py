"""Adapt a model of four sensors with LSTMs that takes one dict.

    .venv/bin/python examples/four_sensors.py

The encoders are plain `nn.LSTM`s, of which the fusion reads the last state. One sensor drifts, then
one fails. The weights are random: this shows the calls, not a gain.
"""

import torch
from torch import nn

import dasp

SIZES = {"accelerometer": 3, "gyroscope": 3, "magnetometer": 3, "barometer": 1}


class Activity(nn.Module):
    """Encoders of different widths, a gate per sensor, and a head."""

    def __init__(self) -> None:
        super().__init__()
        widths = {name: 8 + 4 * size for name, size in SIZES.items()}
        self.rnn = nn.ModuleDict(
            {n: nn.LSTM(SIZES[n], w, batch_first=True) for n, w in widths.items()}
        )
        self.maps = nn.ModuleDict({n: nn.Linear(w, 32) for n, w in widths.items()})
        self.norm, self.head = nn.LayerNorm(32), nn.Linear(32, 6)

    def forward(self, batch):
        last = {name: self.rnn[name](value)[1][0][-1] for name, value in batch.items()}
        mapped = torch.stack([self.maps[name](own) for name, own in last.items()])
        return {"logits": self.head(self.norm((mapped.softmax(dim=0) * mapped).sum(dim=0)))}


def main() -> None:
    torch.manual_seed(0)
    model = Activity().eval()
    inputs = {name: torch.randn(64, 50, size).cumsum(dim=1) for name, size in SIZES.items()}
    encoders = {name: f"rnn.{name}" for name in SIZES}
    wrapped = dasp.wrap(model, encoders=encoders, head="head", inputs=inputs)
    print("widths:", wrapped.embed_dim)
    tta = dasp.adapt(wrapped, "dasp", lr=1e-3)
    drifted = {**inputs, "gyroscope": inputs["gyroscope"] + 10}
    failed = {name: value for name, value in drifted.items() if name != "barometer"}
    for name, batch in {"clean": inputs, "drift": drifted, "one missing": failed}.items():
        out = tta(batch)
        scores = {sensor: round(score, 2) for sensor, score in out.diagnosis.scores.items()}
        print(f"{name}: redundancy {scores}, biased {set(out.diagnosis.biased)}, {out.updated=}")


if __name__ == "__main__":
    main()
