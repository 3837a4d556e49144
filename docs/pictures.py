"""Draw the pictures of the page on the diagnosis, from the built-in set and its first model.

python docs/pictures.py    # writes docs/pictures/*.svg, half a minute
"""

from pathlib import Path

import torch
from torch import Tensor

import dasp
from dasp.core.files import atomic_path
from dasp.data.shapes import SoundingShapes
from dasp.methods.redundancy import released_redundancy
from dasp.report.style import standalone
from dasp.report.svg import Plot, Style
from dasp.streams import Domain, DomainDamage

FOLDER = Path(__file__).with_name("pictures")
BATCH, BATCHES, SHOWN, DELTA = 64, 3, 32, 0.05
STRETCHES = (
    ("clean", None),
    ("fog on the frames", Domain("video", "fog", 5)),
    ("clean", None),
    ("traffic over the sound", Domain("audio", "traffic", 5)),
    ("clean", None),
)
LOOKS = {"audio": Style(8, 2.0), "video": Style(4, 2.0)}
LIMIT = Style(12, 1.4, marked=False)


@torch.no_grad()
def embeddings(domain: Domain | None, start: int) -> dict[str, Tensor]:
    """Return what the source model makes of one batch, each modality alone: {name: (B, D)}."""
    model = dasp.load_model("sounding_shapes_0")
    damage = None if domain is None else DomainDamage(domain, seed=0)
    data = SoundingShapes("test", start + BATCH, damage=damage)
    samples = [data[place] for place in range(start, start + BATCH)]
    inputs = {n: torch.stack([s.inputs[n] for s in samples]) for n in model.modalities}
    tokens = model.encode(inputs)
    return {name: model.fuse({name: value}).embedding for name, value in tokens.items()}


def stream_picture(scores: list[dict[str, float]]) -> str:
    """Draw the redundancy of both modalities batch by batch; `scores` holds one dict a batch."""
    highest = max(max(found.values()) for found in scores)
    plot = Plot(x=(0.5, len(scores) + 0.5), y=(0.0, 1.1 * highest), width=860, height=320, top=34)
    plot.y_axis("redundancy")
    for place, (name, domain) in enumerate(STRETCHES):
        ends = (0.5 + place * BATCHES, 0.5 + (place + 1) * BATCHES)
        if domain:
            css = f"fill:{LOOKS[domain.modality].colour};opacity:.12"
            plot.box(ends, plot.y, css, name)
        plot.text(plot.at(sum(ends) / 2, 0)[0], 24, name, strong=domain is not None)
    plot.x_axis("batch of 64 samples", about=len(scores))
    batches = list(range(1, len(scores) + 1))
    for name, look in LOOKS.items():
        plot.line(batches, [found[name] for found in scores], look, name, every=1)
    limits = [min(found.values()) + DELTA for found in scores]
    plot.line(batches, limits, LIMIT, "threshold")
    legend = [*LOOKS.items(), (f"the lower of the two + δ ({DELTA})", LIMIT)]
    return standalone(plot.svg("Redundancy of audio and video along a stream.", legend))


def matrix_picture(panels: dict[str, Tensor]) -> str:
    """Draw, for each embedding (B, D), how alike its dimensions are: stronger is more alike."""
    side, gap = 250, 32
    width = gap + len(panels) * (side + gap)
    plot = Plot((0, 1), (0, 1), width=width, height=side + 48)
    for place, (title, value) in enumerate(panels.items()):
        left = gap + place * (side + gap)
        plot.text(left + side / 2, 22, title, strong=True)
        plot.parts.append(_cells(value, left, 34, side / SHOWN))
        edge = f"M{left} 34h{side}v{side}h-{side}z"
        plot.parts.append(f'<path class="axis" fill="none" d="{edge}"/>')
    return standalone(plot.svg("How alike the dimensions of an embedding are, pair by pair."))


def _cells(embedding: Tensor, left: float, top: float, size: float) -> str:
    """Return squares for the cosines of the first `SHOWN` dimensions, in ten shades."""
    unit = torch.nn.functional.normalize(embedding[:, :SHOWN], dim=0)
    shades = (unit.T @ unit).abs().mul(10).round().int()
    parts = []
    for shade in range(1, 11):
        squares = "".join(
            f"M{left + x * size:.1f} {top + y * size:.1f}h{size:.1f}v{size:.1f}h-{size:.1f}z"
            for y, x in (shades == shade).nonzero().tolist()
        )
        parts.append(f'<path fill="currentColor" opacity="{shade / 10:.1f}" d="{squares}"/>')
    return "".join(parts)


def main() -> None:
    """Measure and write both pictures."""
    FOLDER.mkdir(exist_ok=True)
    found = [
        [embeddings(domain, BATCH * (BATCHES * place + batch)) for batch in range(BATCHES)]
        for place, (_, domain) in enumerate(STRETCHES)
    ]
    scores = [released_redundancy(batch) for stretch in found for batch in stretch]
    numbers = [{name: float(score) for name, score in one.items()} for one in scores]
    for one in numbers:
        print({name: round(score, 3) for name, score in one.items()})
    panels = {
        "sound, clean": found[0][0]["audio"],
        "sound under traffic": found[3][0]["audio"],
        "frames meanwhile": found[3][0]["video"],
    }
    for name, drawing in {
        "stream": stream_picture(numbers),
        "alike": matrix_picture(panels),
    }.items():
        with atomic_path(FOLDER / f"{name}.svg") as part:
            part.write_text(drawing)


if __name__ == "__main__":
    main()
