"""GRID: clips by word, the corpus' own layout, splits, and files that are wrong."""

from collections import Counter
from fractions import Fraction

import av
import numpy as np
import pytest

from dasp.core.errors import DataError, OptionError
from dasp.data import grid
from dasp.streams import Domain, DomainDamage

SENTENCE = ("bin", "blue", "at", "f", "two", "now")  # bbaf2n


def write_media(path, frames=15, side=(96, 96), spot=None, sound=True, seconds=None):
    """Write a video of 25 frames a second in which only a spot changes, with a tone."""
    path.parent.mkdir(parents=True, exist_ok=True)
    codecs = ("mpeg1video", "mp2", 44100) if path.suffix == ".mpg" else ("mpeg4", "aac", 16000)
    generator = np.random.default_rng(len(path.stem))
    with av.open(str(path), "w") as container:
        video = container.add_stream(codecs[0], rate=25)
        video.height, video.width = side
        video.pix_fmt, video.bit_rate = "yuv420p", 2_000_000
        audio = container.add_stream(codecs[1], rate=codecs[2], layout="mono") if sound else None
        for number in range(frames):
            image = np.full((*side, 3), 90, np.uint8)
            top, left = spot or (40, 40)
            image[top : top + 16, left : left + 16] = generator.integers(0, 255)
            image[:8, :8] = 16 * (number % 16)
            container.mux(video.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
        container.mux(video.encode(None))
        if audio is not None:
            time = np.arange(int((seconds or frames / 25) * codecs[2])) / codecs[2]
            wave = (0.3 * np.sin(2 * np.pi * 300 * time)).astype(np.float32)[None]
            frame_format = "s16" if codecs[1] == "mp2" else "fltp"
            wave = (wave * 32767).astype(np.int16) if frame_format == "s16" else wave
            size = 1152
            for start in range(0, wave.shape[1], size):
                part = np.ascontiguousarray(wave[:, start : start + size])
                frame = av.AudioFrame.from_ndarray(part, format=frame_format, layout="mono")
                frame.sample_rate, frame.time_base, frame.pts = (
                    codecs[2], Fraction(1, codecs[2]), start,
                )  # fmt: skip
                container.mux(audio.encode(frame))
            container.mux(audio.encode(None))


def write_alignment(path, words=SENTENCE):
    """Write an alignment of 3 s: half a second of silence, then a word every 0.4 s."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = ["0 12500 sil"]
    lines += [f"{12500 + 8750 * k} {21250 + 8750 * k} {word}" for k, word in enumerate(words)]
    path.write_text("\n".join([*lines, "65000 75000 sil", ""]))


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    root = tmp_path_factory.mktemp("words")
    for word in ("bin", "f"):
        for number in range(3):
            write_media(root / word / f"bbaf{number}n_{'bf'.index(word[0])}.mp4")
    return root


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    root = tmp_path_factory.mktemp("corpus")
    write_media(root / "s1" / "bbaf2n.mpg", 75, (288, 352), spot=(190, 160))
    write_alignment(root / "align" / "bbaf2n.align")
    return root


def test_clips_by_word(words):
    clips = grid.find_clips(words)
    assert [clip.id for clip in clips[:2]] == ["bbaf0n_0", "bbaf0n_1"]
    assert [clip.word for clip in clips[:2]] == ["bin", "f"]
    frames, wave = grid.read_frames(clips[0]), grid.read_sound(clips[0])
    assert frames.shape == (15, 96, 96, 3)
    assert (wave.shape, wave.dtype) == ((9600,), np.float32)
    assert np.abs(wave).max() == pytest.approx(0.3, abs=0.05)
    seen, heard = (grid.WordSamples(clips, name)[1] for name in ("video", "audio"))
    assert seen.inputs["video"].shape == (15, grid.INPUT_SIDE, grid.INPUT_SIDE)
    assert heard.inputs["audio"].shape == (64, 128)
    assert (seen.label, heard.id) == (grid.WORDS.index("f"), "bbaf0n_1")


def test_only_the_damaged_modality_is_damaged(words):
    clips = grid.find_clips(words)
    for modality, other, name in (("video", "audio", "fog"), ("audio", "video", "rain")):
        damage = DomainDamage(Domain(modality, name, 5))
        for which, same in ((modality, False), (other, True)):
            clean, damaged = (grid.WordSamples(clips, which, d)[0] for d in (None, damage))
            assert clean.inputs[which].equal(damaged.inputs[which]) == same


def test_words_are_cut_from_the_corpus_around_the_mouth(corpus):
    clips = grid.find_clips(corpus)
    assert [clip.word for clip in clips] == list(SENTENCE)
    assert clips[0].id == "s1/bbaf2n_0"
    assert clips[0].centre == pytest.approx(0.675)
    top, left = grid.mouth_of(corpus / "s1")
    assert top <= 190 <= top + 80
    assert left <= 160 <= left + 80
    whole = grid.decode_whole(clips[0].path)
    frames = grid.read_frames(clips[0])  # frames 9 to 24 are around 0.675 s
    assert np.array_equal(frames, whole[9:24, top : top + 96, left : left + 96])
    assert grid.read_sound(clips[0]).shape == (9600,)
    last = grid.read_frames(clips[-1])
    assert last.shape == (15, 96, 96, 3)


def test_several_speakers_are_split_by_speaker(tmp_path):
    for number in range(1, 6):
        (tmp_path / f"s{number}").mkdir()
        (tmp_path / f"s{number}" / "bbaf2n.mpg").touch()
        write_alignment(tmp_path / "align" / f"s{number}" / "bbaf2n.align")
    clips = grid.find_clips(tmp_path)
    assert len(clips) == 30
    parts = [{c.speaker for c in grid.split_clips(clips, split)} for split in grid.SHARES]
    assert sum(map(len, parts)) == len(set().union(*parts)) == 5
    assert all(parts)


def test_sentences_are_split_within_each_letter():
    names = [f"bba{letter}{n}{end}" for letter in "afz" for n in range(10) for end in "anps"]
    clips = [grid.WordClip(None, word, name, place) for name in names for place, word in
             ((0, "bin"), (3, name[3]))]  # fmt: skip
    parts = {split: grid.split_clips(clips, split) for split in grid.SHARES}
    sentences = [{clip.sentence for clip in part} for part in parts.values()]
    assert sum(map(len, sentences)) == len(set().union(*sentences)) == 120
    for split, count in (("train", 24), ("validation", 6), ("test", 10)):
        counts = Counter(clip.word for clip in parts[split])
        assert counts == {"a": count, "f": count, "z": count, "bin": 3 * count}
        balanced = grid.ordered(parts[split], balanced=True)
        assert set(Counter(clip.word for clip in balanced).values()) == {count}
        assert len({clip.word for clip in balanced[:4]}) == 4
        assert len(grid.ordered(parts[split], balanced=False)) == 6 * count
    with pytest.raises(OptionError, match="did you mean 'test'"):
        grid.split_clips(clips, "tset")


def test_what_is_no_grid_is_refused(tmp_path, words):
    with pytest.raises(DataError, match="dasp data fetch grid"):
        grid.find_clips(tmp_path)
    with pytest.raises(DataError, match="is not a directory"):
        grid.find_clips(tmp_path / "nowhere")
    (tmp_path / "cat").mkdir()
    (tmp_path / "cat" / "a_1.mp4").touch()
    with pytest.raises(DataError, match=f"{tmp_path / 'cat'}: unknown word 'cat'"):
        grid.find_clips(tmp_path)
    (tmp_path / "cat").rename(tmp_path / "bin")
    (tmp_path / "bin" / "a_1.mp4").rename(tmp_path / "bin" / "a.mp4")
    with pytest.raises(DataError, match=r"bin/a.mp4 is not named <sentence>_<place>.mp4"):
        grid.find_clips(tmp_path)


def test_a_clip_without_sound_or_frames_is_named(tmp_path):
    path = tmp_path / "bin" / "bbaf2n_0.mp4"
    write_media(path, sound=False)
    (clip,) = grid.find_clips(tmp_path)
    with pytest.raises(DataError, match=f"{path} has no sound"):
        grid.read_sound(clip)
    write_media(path, frames=9)
    with pytest.raises(DataError, match=f"{path} has 9 frames, not 15"):
        grid.read_frames(clip)
    with pytest.raises(DataError, match=rf"{path} has 0\.\d+ s of sound"):
        grid.read_sound(clip)
    path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(DataError, match=str(path)):
        grid.read_frames(clip)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("100 200 dog", "line 2: unknown word 'dog'"),
        ("100 bin", "line 2: '100 bin' is not 'start end word'"),
        ("300 200 bin", "line 2: '300 200 bin' is not 'start end word'"),
        ("a b bin", "line 2: 'a b bin' is not"),
    ],
)
def test_a_wrong_alignment_is_named_with_its_line(tmp_path, line, message):
    path = tmp_path / "bbaf2n.align"
    path.write_text(f"0 100 sil\n{line}\n")
    with pytest.raises(DataError, match=f"{path}, {message}"):
        grid.read_alignment(path)


def test_a_video_without_alignment_is_named(tmp_path):
    (tmp_path / "s1").mkdir()
    (tmp_path / "s1" / "bbaf2n.mpg").touch()
    with pytest.raises(DataError, match=r"bbaf2n.mpg has no alignment bbaf2n.align in"):
        grid.find_clips(tmp_path)
