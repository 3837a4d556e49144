"""Draw the pictures of the page on the diagnosis, from the built-in set and its first model.

python docs/pictures.py    # writes docs/pictures/*.svg, half a minute
"""

from pathlib import Path

import torch
from matplotlib.patches import PathPatch
from matplotlib.path import Path as Polygons
from torch import Tensor

import dasp
from dasp.core.files import atomic_path
from dasp.data.shapes import SoundingShapes
from dasp.methods.dasp import redundancy
from dasp.report.figures import INK, Chart, look, new_axes
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
LOOKS = {"audio": look(1), "video": look(2)}


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


def stream_picture(scores: list[dict[str, float]]) -> Chart:
    """Draw the redundancy of both modalities batch by batch; `scores` holds one dict per batch."""
    figure, (axes,) = new_axes(8.6, 3.2)
    for place, (name, domain) in enumerate(STRETCHES):
        ends = (0.5 + place * BATCHES, 0.5 + (place + 1) * BATCHES)
        if domain:
            axes.axvspan(*ends, color=LOOKS[domain.modality]["color"], alpha=0.12, linewidth=0)
        weight = "bold" if domain else "normal"
        transform = axes.get_xaxis_transform()
        axes.text(sum(ends) / 2, 1.03, name, ha="center", weight=weight, transform=transform)
    batches = range(1, len(scores) + 1)
    for name, style in LOOKS.items():
        axes.plot(batches, [found[name] for found in scores], label=name, **style)
    limits = [min(found.values()) + DELTA for found in scores]
    label = f"the lower of the two + δ ({DELTA})"
    axes.plot(batches, limits, ":", color=INK, label=label)
    axes.set(xlabel="batch of 64 samples", ylabel="redundancy", xticks=list(batches))
    axes.set_ylim(bottom=0)
    axes.set_xlim(0.5, len(scores) + 0.5)
    figure.legend(loc="outside lower center", ncols=3, frameon=False)
    return Chart("stream", "Redundancy of audio and video along a stream.", figure)


def matrix_picture(panels: dict[str, Tensor]) -> Chart:
    """Draw, for each embedding (B, D), how alike its dimensions are: stronger is more alike."""
    figure, axes = new_axes(8.4, 2.9, 1, len(panels))
    for panel, (title, value) in zip(axes, panels.items(), strict=True):
        unit = torch.nn.functional.normalize(value[:, :SHOWN], dim=0)
        shades = (unit.T @ unit).abs().mul(10).round().int()
        for shade in range(1, 11):  # squares of one colour, so that they follow light and dark
            corners = (shades == shade).nonzero().flip(1)[:, None]  # (cells, 1, 2): x, y
            squares = corners + torch.tensor([(0, 0), (1, 0), (1, 1), (0, 1)])
            path = Polygons.make_compound_path_from_polys(squares.numpy())
            panel.add_patch(PathPatch(path, facecolor=INK, alpha=shade / 10, linewidth=0))
        panel.set_title(title, fontsize=9, weight="bold")
        panel.set(xlim=(0, SHOWN), ylim=(SHOWN, 0), xticks=[], yticks=[], aspect="equal")
    return Chart("alike", "How alike the dimensions of an embedding are, pair by pair.", figure)


def main() -> None:
    """Measure and write both pictures."""
    FOLDER.mkdir(exist_ok=True)
    found = [
        [embeddings(domain, BATCH * (BATCHES * place + batch)) for batch in range(BATCHES)]
        for place, (_, domain) in enumerate(STRETCHES)
    ]
    scores = [redundancy(batch, "cosine", "joint") for stretch in found for batch in stretch]
    numbers = [{name: float(score) for name, score in one.items()} for one in scores]
    for one in numbers:
        print({name: round(score, 3) for name, score in one.items()})
    panels = {
        "sound, clean": found[0][0]["audio"],
        "sound under traffic": found[3][0]["audio"],
        "frames meanwhile": found[3][0]["video"],
    }
    for chart in (stream_picture(numbers), matrix_picture(panels)):
        with atomic_path(FOLDER / f"{chart.name}.svg") as part:
            part.write_text(chart.svg_file)


if __name__ == "__main__":
    main()
