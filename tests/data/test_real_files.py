"""The recordings themselves, where DASP_DATA or ../shared/data has them: counts, shapes, splits."""

import io
import os
import subprocess
import sys
import tarfile
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from dasp.core.sensors import SENSORS
from dasp.corruptions import corrupt_sound
from dasp.data import grid, inertial

HERE = Path(__file__).parents[2]
DATA = Path(os.environ.get("DASP_DATA", HERE.parent / "shared" / "data"))
WORDS, BODY, NOISES = DATA / "grid_words" / "grid_words.tar", DATA / "dsa", DATA / "noise" / "set_a"


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    """Every name of the archive; only the first clips have content."""
    if not WORDS.is_file():
        pytest.skip("needs the words of GRID")
    root = tmp_path_factory.mktemp("grid")
    with tarfile.open(WORDS) as archive:
        for number, member in enumerate(m for m in archive.getmembers() if m.isfile()):
            path = root / member.name
            path.parent.mkdir(parents=True, exist_ok=True)
            content = archive.extractfile(member) if number < 6 else io.BytesIO()
            path.write_bytes(content.read())
    return root


def test_words_are_counted_split_and_read(words):
    clips = grid.find_clips(words)
    assert len(clips) == 3600
    counts = Counter(clip.word for clip in clips)
    assert counts == {word: 40 if word in grid.LETTERS else 100 for word in grid.WORDS}
    parts = {split: grid.split_clips(clips, split) for split in grid.SHARES}
    sentences = [{clip.sentence for clip in part} for part in parts.values()]
    assert list(map(len, sentences)) == [600, 150, 250]
    assert len(set().union(*sentences)) == 1000  # none is in two splits
    for part in parts.values():
        assert {clip.word for clip in part} == set(grid.WORDS)
    assert len(grid.ordered(parts["test"], balanced=True)) == 51 * 10
    for clip in clips:
        if clip.path.stat().st_size:
            assert grid.read_frames(clip).shape == (15, 96, 96, 3)
            assert np.abs(grid.read_sound(clip)).max() > 0.01


def test_segments_are_counted_split_and_read(tmp_path):
    if not (BODY / "unpack.py").is_file():
        pytest.skip("needs the packed Daily and Sports Activities")
    person = "p6"
    command = [sys.executable, str(BODY / "unpack.py"), str(tmp_path), person[1:]]
    subprocess.run(command, check=True)
    segments = inertial.find_segments(tmp_path, inertial.people_of("validation"))
    assert len(segments) == 19 * 60
    assert {segment.person for segment in segments} == {person}
    assert Counter(segment.label for segment in segments) == dict.fromkeys(range(19), 60)
    values = np.stack([inertial.read_segment(segment.path) for segment in segments[:190]])
    lengths = [
        np.linalg.norm(values[..., kind, :], axis=-1).mean() / size
        for kind, size in enumerate(SENSORS.values())
    ]
    assert lengths[0] == pytest.approx(1, abs=0.2)  # gravity
    assert lengths[2] == pytest.approx(0.85, abs=0.2)  # the earth's field


def test_recorded_noises_are_used():
    if not NOISES.is_dir():
        pytest.skip("needs the recorded noises")
    wave = np.zeros(grid.SAMPLES, np.float32)
    for name in ("traffic", "crowd", "rain", "thunder", "wind"):
        made = [corrupt_sound(wave, name, 5, 0, "a", noise_dir=where) for where in (NOISES, None)]
        assert not np.array_equal(*made)
        assert np.abs(made[0]).max() > 0.01
