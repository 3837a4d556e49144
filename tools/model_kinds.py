"""Run every registered method on twelve kinds of models, and fill the table of docs/own_model.md.

    python tools/model_kinds.py

The models are small and have random weights; each is written as such models usually are and goes
through `dasp.wrap`. A method works if it takes its batches without an error and its logits are
finite. Otherwise the table has the reason that it gave. A test compares the page with this.
"""

import re
import string
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import Tensor, nn

import dasp
from dasp.core.errors import DaspError
from dasp.core.files import atomic_path
from dasp.methods import hyperparameters

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))

PAGE = Path(__file__).parents[1] / "docs" / "own_model.md"
BLOCK = re.compile(r"(<!-- model kinds -->\n)(.*?)(<!-- model kinds, end -->)", re.S)
CLASSES, BATCH, WIDTH = 5, 16, 16
INPUTS = {"audio": (1, 8, 16), "video": (3, 12, 12)}
Built = tuple[nn.Module, dict[str, Tensor]]


def patches(channels: int) -> nn.Module:
    """Return an encoder of images or spectrograms: (B, C, H, W) → tokens (B, N, WIDTH)."""
    maps = nn.Conv2d(channels, WIDTH, 4, 4)
    return nn.Sequential(maps, nn.Flatten(2), _LastAxis(), nn.LayerNorm(WIDTH))


class _LastAxis(nn.Module):
    def forward(self, value: Tensor) -> Tensor:
        return value.transpose(1, 2)


class Pair(nn.Module):
    """Two encoders; subclasses join their tokens (B, N, WIDTH) to one feature (B, WIDTH)."""

    def __init__(self) -> None:
        super().__init__()
        self.audio_net, self.video_net = patches(1), patches(3)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, audio: Tensor, video: Tensor) -> Tensor:
        return self.head(self.join(self.audio_net(audio), self.video_net(video)))

    def join(self, sound: Tensor, sight: Tensor) -> Tensor:
        raise NotImplementedError


class Concat(Pair):
    """Late fusion by concatenation."""

    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Sequential(nn.Linear(2 * WIDTH, WIDTH), nn.ReLU())

    def join(self, sound: Tensor, sight: Tensor) -> Tensor:
        return self.mix(torch.cat([sound.mean(dim=1), sight.mean(dim=1)], dim=1))


class Sum(Pair):
    """Late fusion by sum."""

    def join(self, sound: Tensor, sight: Tensor) -> Tensor:
        return sound.mean(dim=1) + sight.mean(dim=1)


class Attention(Pair):
    """Late fusion by one attention over all tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.MultiheadAttention(WIDTH, 2, batch_first=True)

    def join(self, sound: Tensor, sight: Tensor) -> Tensor:
        both = torch.cat([sound, sight], dim=1)
        return self.mix(both, both, both)[0].mean(dim=1)


class CrossAttention(Pair):
    """Each modality asks the other."""

    def __init__(self) -> None:
        super().__init__()
        self.hear = nn.MultiheadAttention(WIDTH, 2, batch_first=True)
        self.see = nn.MultiheadAttention(WIDTH, 2, batch_first=True)

    def join(self, sound: Tensor, sight: Tensor) -> Tensor:
        heard = self.hear(sight, sound, sound)[0].mean(dim=1)
        return heard + self.see(sound, sight, sight)[0].mean(dim=1)


class Gated(Pair):
    """A gate decides how much of each modality passes."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(2 * WIDTH, WIDTH)

    def join(self, sound: Tensor, sight: Tensor) -> Tensor:
        sound, sight = sound.mean(dim=1), sight.mean(dim=1)
        share = self.gate(torch.cat([sound, sight], dim=1)).sigmoid()
        return share * sound + (1 - share) * sight


class Mixture(Pair):
    """An expert per modality; their logits are weighted."""

    def __init__(self) -> None:
        super().__init__()
        self.experts = nn.ModuleList(nn.Linear(WIDTH, CLASSES) for _ in INPUTS)
        self.router = nn.Linear(2 * WIDTH, 2)
        del self.head

    def forward(self, audio: Tensor, video: Tensor) -> Tensor:
        parts = [self.audio_net(audio).mean(dim=1), self.video_net(video).mean(dim=1)]
        share = self.router(torch.cat(parts, dim=1)).softmax(dim=1)
        votes = torch.stack([e(p) for e, p in zip(self.experts, parts, strict=True)], dim=1)
        return (share[..., None] * votes).sum(dim=1)


def blocks(channels: int) -> nn.Module:
    first = nn.Sequential(nn.Conv2d(channels, WIDTH, 3, 2, 1), nn.BatchNorm2d(WIDTH), nn.ReLU())
    return nn.Sequential(first, nn.Conv2d(WIDTH, WIDTH, 3, 1, 1), nn.BatchNorm2d(WIDTH), nn.ReLU())


class Cnn(nn.Module):
    """CNNs with BatchNorm and late fusion."""

    def __init__(self) -> None:
        super().__init__()
        self.audio_net, self.video_net = blocks(1), blocks(3)
        self.head = nn.Linear(2 * WIDTH, CLASSES)

    def forward(self, audio: Tensor, video: Tensor) -> Tensor:
        maps = self.audio_net(audio), self.video_net(video)
        return self.head(torch.cat([own.mean(dim=(2, 3)) for own in maps], dim=1))


class Recurrent(nn.Module):
    """LSTMs of three sensors, given as one dict; the last states are joined."""

    def __init__(self) -> None:
        super().__init__()
        names = ("accelerometer", "gyroscope", "barometer")
        self.nets = nn.ModuleDict({name: nn.LSTM(3, WIDTH, batch_first=True) for name in names})
        self.norm, self.head = nn.LayerNorm(3 * WIDTH), nn.Linear(3 * WIDTH, CLASSES)

    def forward(self, batch: dict[str, Tensor]) -> Tensor:
        last = [self.nets[name](value)[1][0][-1] for name, value in batch.items()]
        return self.head(self.norm(torch.cat(last, dim=1)))


class Transformer(Pair):
    """A token for the class and two layers over all tokens."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(WIDTH, 2, 32, 0.0, batch_first=True, norm_first=True)
        self.first = nn.Parameter(torch.randn(1, 1, WIDTH))
        self.mix = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def join(self, sound: Tensor, sight: Tensor) -> Tensor:
        first = self.first.expand(len(sound), 1, WIDTH)
        return self.mix(torch.cat([first, sound, sight], dim=1))[:, 0]


class Dropped(Attention):
    """Trained with the picture missing at times: a learned feature stands for it."""

    def __init__(self) -> None:
        super().__init__()
        self.no_video = nn.Parameter(torch.randn(9, WIDTH))

    def forward(self, audio: Tensor, video: Tensor | None = None) -> Tensor:
        sound = self.audio_net(audio)
        sight = self.no_video.expand(len(sound), -1, -1) if video is None else self.video_net(video)
        return self.head(self.join(sound, sight))


ENCODERS = {"audio": "audio_net", "video": "video_net"}


def wrapped(build: Callable[[], nn.Module], **options: object) -> Built:
    """Wrap a model of sounds and pictures."""
    model, inputs = build().eval(), {n: torch.randn(BATCH, *s) for n, s in INPUTS.items()}
    head = "head" if hasattr(model, "head") else None
    given = {"encoders": ENCODERS, "head": head} | options
    return dasp.wrap(model, inputs=inputs, **given), inputs


def recurrent() -> Built:
    model = Recurrent().eval()
    inputs = {name: torch.randn(BATCH, 20, 3) for name in model.nets}
    encoders = {name: f"nets.{name}" for name in inputs}
    return dasp.wrap(model, encoders=encoders, head="head", inputs=inputs), inputs


def hugging_face() -> Built:
    from hugging_face import build

    inputs = {"audio": torch.randn(BATCH, 96, 32), "video": torch.randn(BATCH, 3, 32, 32)}
    encoders = {"audio": "sound", "video": "sight"}
    return dasp.wrap(build(), encoders=encoders, head="classifier", inputs=inputs), inputs


def lightning() -> Built:
    from lightning_module import LitPair

    return wrapped(LitPair)


def dropped() -> Built:
    model = Dropped()
    return wrapped(lambda: model, absent={"video": model.no_video.detach(), "audio": "zeros"})


KINDS: dict[str, Callable[[], Built]] = {
    "concat": lambda: wrapped(Concat),
    "sum": lambda: wrapped(Sum),
    "attention": lambda: wrapped(Attention),
    "cross-attention": lambda: wrapped(CrossAttention),
    "gated": lambda: wrapped(Gated),
    "mixture": lambda: wrapped(Mixture),
    "CNN, BatchNorm": lambda: wrapped(Cnn),
    "LSTM, 3 sensors": recurrent,
    "transformer": lambda: wrapped(Transformer),
    "Hugging Face": hugging_face,
    "Lightning": lightning,
    "missing in training": dropped,
}


def tried(build: Callable[[], Built], method: str) -> list[str]:
    """Adapt a model with a method; return the reasons for which that is refused."""
    torch.manual_seed(0)
    model, inputs = build()
    needs_length = "stream_length" in hyperparameters(dasp.METHODS[method])
    try:
        tta = dasp.adapt(model, method, **({"stream_length": 2} if needs_length else {}))
        if tta.method.needs_source:
            tta.fit([inputs])
        for scale in (1.0, 0.5):
            out = tta({name: scale * value for name, value in inputs.items()})
            assert torch.isfinite(out.logits).all(), out
            assert out.rejected is None, out
    except DaspError as error:
        return reasons(str(error))
    finally:
        model.close()  # type: ignore[operator]
    return []


def reasons(error: str) -> list[str]:
    """Return what an error says is lacking, without names of classes and explanations."""
    found = re.findall(r"the model has no [^:;]+|defined for two modalities", error)
    return found or re.findall(r"needs tokens and a fused embedding of one width", error) or [error]


def table() -> str:
    """Return the table and its legend as Markdown."""
    letters: dict[str, str] = {}

    def cell(found: list[str]) -> str:
        for why in found:
            letters.setdefault(why, string.ascii_lowercase[len(letters)])
        return " ".join(letters[why] for why in found) or "✓"

    lines = ["| method | " + " | ".join(KINDS) + " |", "|---|" + ":-:|" * len(KINDS)]
    for method in dasp.METHODS:
        cells = [cell(tried(build, method)) for build in KINDS.values()]
        lines.append(f"| `{method}` | " + " | ".join(cells) + " |")
    legend = [f"- **{letter}**: {why}" for why, letter in letters.items()]
    return "\n".join([*lines, "", *legend]) + "\n"


def filled(page: str, made: str) -> str:
    """Return the page with the table in it."""
    return BLOCK.sub(lambda match: f"{match[1]}{made}{match[3]}", page)


def on_page(page: str) -> Iterator[str]:
    """Yield the table of the page."""
    yield from (match[2] for match in BLOCK.finditer(page))


def main() -> None:
    torch.set_num_threads(1)
    text = filled(PAGE.read_text(), table())
    with atomic_path(PAGE) as part:
        part.write_text(text)


if __name__ == "__main__":
    main()
