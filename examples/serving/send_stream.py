"""Send a stream of the built-in data set to `dasp serve`: clean, fog over the frames, clean.

    dasp serve --model sounding_shapes_0
    python examples/serving/send_stream.py http://127.0.0.1:8720

The token is taken from the environment variable DASP_TOKEN.
"""

import sys

import torch

from dasp.client import Client
from dasp.data.shapes import SoundingShapes
from dasp.streams import Domain, DomainDamage

SIZE, BATCHES = 16, 3  # samples per batch, batches per domain

with Client(sys.argv[1]) as client:
    for fog in (None, DomainDamage(Domain("video", "fog", 5), seed=0), None):
        samples = SoundingShapes("test", SIZE * BATCHES, damage=fog)
        for start in range(0, len(samples), SIZE):
            batch = [samples[place] for place in range(start, start + SIZE)]
            inputs = {n: torch.stack([s.inputs[n] for s in batch]) for n in batch[0].inputs}
            out = client(inputs)
            right = sum(int(p) == s.label for p, s in zip(out.logits.argmax(1), batch, strict=True))
            flagged = ", ".join(sorted(out.diagnosis.biased)) or "none"
            print(f"{'fog' if fog else 'clean':5}  {right:2} of {SIZE} right, biased: {flagged}")
