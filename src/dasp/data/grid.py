"""Spoken words of the GRID corpus: a sequence of frames around the mouth, and the sound.

Cooke, Barker, Cunningham and Shao, "An audio-visual corpus for speech perception and automatic
speech recognition", JASA 2006. Two layouts are read:
- words: `<word>/<sentence>_<place>.mp4`, clips that are cut already, of one speaker;
- the corpus' own: `s1/*.mpg` with `align/*.align`, from which the words are cut while reading, of
  any number of speakers. Alignments may lie in `s1/align`, `align/s1`, `alignments/s1` or, of a
  single speaker, in `align`.
"""

import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from dasp.core.errors import DataError, OptionError, cause, unknown_name
from dasp.core.extras import Pillow
from dasp.core.sound import from_pcm16
from dasp.data.features import log_mel
from dasp.data.loading import Damage, Sample, damaged
from dasp.data.media import SAMPLE_RATE, decode_sound, decode_whole

LETTERS = "abcdefghijklmnopqrstuvxyz"  # "w", of three syllables, is not in the corpus
WORDS = tuple(
    sorted(
        (
            "bin", "lay", "place", "set", "blue", "green", "red", "white", "at", "by", "in", "with",
            *LETTERS, "zero", "one", "two", "three", "four", "five", "six", "seven", "eight",
            "nine", "again", "now", "please", "soon",
        )
    )
)  # fmt: skip
SILENCE = ("sil", "sp")
TICKS = 25_000  # per second, in an alignment
FRAME_RATE, FRAMES = 25, 15
SAMPLES = FRAMES * SAMPLE_RATE // FRAME_RATE  # 0.6 s
SIDE = 96  # of the frames that are corrupted
INPUT_SIDE = 64  # of the middle of a frame, which a model sees
MEL_FRAMES = 64
MOTION = 19.0  # grey levels by which a pixel of moving lips changes
LOOKED_AT = 12  # sentences of a speaker that show where the mouth is
SHARES = {"train": 0.6, "validation": 0.15, "test": 0.25}
FEWEST_SPEAKERS = 3  # for a split by speaker

Frames = NDArray[np.uint8]  # (15, 96, 96, 3)


@dataclass(frozen=True)
class WordClip:
    """One spoken word."""

    path: Path
    word: str
    sentence: str
    place: int  # in the sentence
    speaker: str = ""
    centre: float | None = None  # seconds into the sentence; None: the file is the word

    @property
    def id(self) -> str:
        """Return the name that seeds its corruption, such as "s1/bbaf2n_3"."""
        return f"{self.speaker}/{self.sentence}_{self.place}".lstrip("/")

    @property
    def label(self) -> int:
        """Return the index of the word."""
        return WORDS.index(self.word)


def find_clips(root: str | Path) -> list[WordClip]:
    """Return all words below `root`, whichever layout it has, sorted by id and word."""
    base = Path(root)
    if not base.is_dir():
        raise DataError(f"{base} is not a directory: give the root of GRID.")
    clips = [_ready_clip(path) for path in base.glob("*/*.mp4")]
    for video in () if clips else sorted(base.glob("s*/*.mpg")):
        clips += _words_of(video, base)
    if not clips:
        raise DataError(
            f"no clips in {base}: expected <word>/<sentence>_<place>.mp4, or s1/*.mpg with "
            "align/*.align; `dasp data fetch grid` says where to get them."
        )
    clips.sort(key=lambda clip: (clip.id, clip.word))
    twice = [name for name, count in Counter(clip.id for clip in clips).items() if count > 1]
    if twice:
        raise DataError(f"{base}: {twice[0]} is there as two words: remove one of the files.")
    return clips


def _ready_clip(path: Path) -> WordClip:
    if path.parent.name not in WORDS:
        unknown = unknown_name("word", path.parent.name, WORDS)
        raise DataError(f"{path.parent}: {unknown} Rename or remove it.")
    sentence, _, place = path.stem.rpartition("_")
    if not sentence or not place.isdecimal():
        raise DataError(f"{path} is not named <sentence>_<place>.mp4: rename or remove it.")
    return WordClip(path, path.parent.name, sentence, int(place))


def _words_of(video: Path, root: Path) -> list[WordClip]:
    speaker, name = video.parent.name, f"{video.stem}.align"
    several = len(list(root.glob("s*/"))) > 1
    folders = [video.parent / "align", root / "align" / speaker, root / "alignments" / speaker]
    folders += [] if several else [root / "align"]
    path = next((folder / name for folder in folders if (folder / name).is_file()), None)
    if path is None:
        raise DataError(
            f"{video} has no alignment {name} in {', '.join(map(str, folders))}: put it there, or "
            "remove the video."
        )
    spans = read_alignment(path)
    return [
        WordClip(video, span.word, video.stem, place, speaker, (span.start + span.end) / 2)
        for place, span in enumerate(spans)
    ]


class Span(NamedTuple):
    """A word and when it is spoken, in seconds."""

    word: str
    start: float
    end: float


def read_alignment(path: Path) -> list[Span]:
    """Return the words of an alignment, lines `start end word` in 1/25000 s, without silence."""
    try:
        lines = path.read_text(encoding="ascii").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot read {path}: {cause(error)}; fetch it again.") from error
    spans = []
    for number, line in enumerate(lines, start=1):
        match = re.fullmatch(r"\s*(\d+)\s+(\d+)\s+(\S+)\s*", line)
        if match is None or int(match[1]) > int(match[2]):
            raise DataError(
                f"{path}, line {number}: {line!r:.60} is not 'start end word'; fetch it again."
            )
        if match[3] not in (*WORDS, *SILENCE):
            raise DataError(f"{path}, line {number}: {unknown_name('word', match[3], WORDS)}")
        if match[3] not in SILENCE:
            spans.append(Span(match[3], int(match[1]) / TICKS, int(match[2]) / TICKS))
    return spans


def split_clips(clips: Sequence[WordClip], split: str) -> list[WordClip]:
    """Return the clips of train, validation or test: 60, 15 and 25% of the sentences.

    Three or more speakers are split by speaker. Otherwise sentences are, and of those with the
    same letter the same share goes to each split, so that every word is in all of them. (In the
    order of their names they could not be split: it begins with the first word.)
    """
    if split not in SHARES:
        raise OptionError(unknown_name("split of grid", split, SHARES))
    speakers = sorted({clip.speaker for clip in clips})
    if len(speakers) >= FEWEST_SPEAKERS:
        of_speaker = _dealt(speakers)
        return [clip for clip in clips if of_speaker[clip.speaker] == split]
    strata: defaultdict[str, set[str]] = defaultdict(set)
    for clip in clips:
        strata[clip.sentence[3:4]].add(clip.sentence)  # bin blue at F 2 now: bbaf2n
    of_sentence = {name: part for names in strata.values() for name, part in _dealt(names).items()}
    return [clip for clip in clips if of_sentence[clip.sentence] == split]


def _dealt(names: Iterable[str]) -> dict[str, str]:
    """Return the split of each name, in an order that does not depend on what it means."""
    order = sorted(names, key=_mixed)
    ends = np.cumsum([share * len(order) for share in SHARES.values()]).round(6)
    places = [int(np.searchsorted(ends, place, side="right")) for place in range(len(order))]
    return {name: list(SHARES)[place] for name, place in zip(order, places, strict=True)}


def _mixed(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()


def ordered(clips: Sequence[WordClip], balanced: bool) -> list[WordClip]:
    """Return clips in the order of a stream, of which any first part is alike.

    balanced: equally many of each word that is there. Otherwise all, as often as they were said.
    """
    mixed = sorted(clips, key=lambda clip: _mixed(clip.id))
    if not balanced:
        return mixed
    by_word: defaultdict[str, list[WordClip]] = defaultdict(list)
    for clip in mixed:
        by_word[clip.word].append(clip)
    return [clip for row in zip(*by_word.values(), strict=False) for clip in row]


def read_frames(clip: WordClip) -> Frames:
    """Return the 15 frames of a word, 96 by 96 pixels around the mouth."""
    frames = decode_whole(clip.path)
    if len(frames) < FRAMES:
        raise DataError(f"{clip.path} has {len(frames)} frames, not {FRAMES}: fetch it again.")
    first = _first_frame(clip, len(frames))
    frames = frames[first : first + FRAMES]
    if clip.centre is not None:
        top, left = mouth_of(clip.path.parent)
        frames = frames[:, top : top + SIDE, left : left + SIDE]
    if frames.shape[1:3] != (SIDE, SIDE):
        frames = np.stack([_resized(frame) for frame in frames])
    return frames


def _first_frame(clip: WordClip, count: int) -> int:
    """Return the frame at which a word's 0.6 s begin; all of them lie within the recording."""
    middle = count / 2 if clip.centre is None else clip.centre * FRAME_RATE
    return int(np.clip(round(middle - FRAMES / 2), 0, count - FRAMES))


def _resized(frame: NDArray[np.uint8]) -> NDArray[np.uint8]:
    height, width = frame.shape[:2]
    side = min(height, width)
    top, left = (height - side) // 2, (width - side) // 2
    square = Pillow.fromarray(frame[top : top + side, left : left + side])
    return np.array(square.resize((SIDE, SIDE), Pillow.Resampling.BILINEAR))


def read_sound(clip: WordClip) -> NDArray[np.float32]:
    """Return the 0.6 s of sound of a word, (9600,) float32 at 16 kHz."""
    wave = decode_sound(clip.path)
    first = 0
    if clip.centre is not None:
        count = len(wave) * FRAME_RATE // SAMPLE_RATE
        first = _first_frame(clip, max(count, FRAMES)) * SAMPLE_RATE // FRAME_RATE
    part = wave[first : first + SAMPLES]
    if len(part) < SAMPLES:
        raise DataError(
            f"{clip.path} has {len(wave) / SAMPLE_RATE:.2f} s of sound, less than the word "
            f"'{clip.word}' needs: fetch it again."
        )
    return from_pcm16(part)


@lru_cache(maxsize=64)
def mouth_of(folder: Path) -> tuple[int, int]:
    """Return top and left of the 96 by 96 pixels in which a speaker's frames change most.

    A speaker sits still before a plain wall: what moves is the mouth. The sums are of integers.
    """
    videos = sorted(folder.glob("*.mpg"))
    chosen = videos[:: max(len(videos) // LOOKED_AT, 1)][:LOOKED_AT]
    moved: NDArray[np.int64] | None = None
    for path in chosen:
        grey = decode_whole(path).sum(axis=-1, dtype=np.int64)  # (frames, H, W)
        change = np.abs(np.diff(grey, axis=0)).sum(axis=0)
        if moved is not None and moved.shape != change.shape:
            raise DataError(f"{path} has frames of another size than {chosen[0]}: fetch it again.")
        moved = change if moved is None else moved + change
    assert moved is not None
    if min(moved.shape) < SIDE:
        raise DataError(f"{chosen[0]} has frames of {moved.shape} pixels: {SIDE} are needed.")
    sums = np.pad(moved, ((1, 0), (1, 0))).cumsum(axis=0).cumsum(axis=1)
    inside = sums[SIDE:, SIDE:] - sums[:-SIDE, SIDE:] - sums[SIDE:, :-SIDE] + sums[:-SIDE, :-SIDE]
    top, left = np.unravel_index(int(inside.argmax()), inside.shape)
    return int(top), int(left)


def grey(frames: Frames) -> NDArray[np.uint8]:
    """Return frames (..., H, W, 3) without colour, (..., H, W)."""
    weights = np.array([299, 587, 114], np.int32)
    return np.asarray((frames.astype(np.int32) @ weights + 500) // 1000, np.uint8)


def video_input(frames: NDArray[np.uint8]) -> torch.Tensor:
    """Return a model's input (..., 15, 64, 64) of grey frames (..., 15, 96, 96).

    It is the middle of the frames, as the difference of each pixel from its mean over the clip:
    the lips move, the face that hardly tells words apart is gone.
    """
    edge = (SIDE - INPUT_SIDE) // 2
    middle = frames[..., edge : edge + INPUT_SIDE, edge : edge + INPUT_SIDE]
    pixels = torch.from_numpy(middle.astype(np.float32))
    return (pixels - pixels.mean(dim=-3, keepdim=True)) / MOTION


def audio_input(wave: NDArray[np.float32]) -> torch.Tensor:
    """Return a model's input (64, 128): the log-mel energies of a word."""
    return log_mel(wave, SAMPLE_RATE, frames=MEL_FRAMES)


class WordSamples:
    """One modality of some words, corrupted by `damage` if it is of that modality."""

    def __init__(
        self, clips: Sequence[WordClip], modality: str, damage: Damage | None = None
    ) -> None:
        if modality not in ("audio", "video"):
            raise OptionError(unknown_name("modality of grid", modality, ["audio", "video"]))
        self.clips, self.modality, self.damage = clips, modality, damage

    def __len__(self) -> int:
        return len(self.clips)

    def __getitem__(self, index: int) -> Sample:
        clip = self.clips[index]
        if self.modality == "audio":
            value = audio_input(damaged(self.damage, "audio", read_sound(clip), clip.id))
        else:
            value = video_input(grey(damaged(self.damage, "video", read_frames(clip), clip.id)))
        return Sample({self.modality: value}, clip.label, clip.id)
