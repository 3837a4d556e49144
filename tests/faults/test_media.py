"""Media that are cut or oversized, and lines of a log that are not events."""

import numpy as np
import pytest
import soundfile
from PIL import Image

from dasp.core.errors import DataError
from dasp.data.media import read_frame, read_wave
from dasp.page.follow import LogFeed


@pytest.mark.parametrize("kind", ["WAV", "RF64"])
@pytest.mark.parametrize("size", [None, 36, 0xFFFFFFFF])
def test_a_cut_wav_is_refused_whatever_size_its_header_tells(tmp_path, kind, size):
    path = tmp_path / "a.wav"
    soundfile.write(path, np.zeros(16000), 16000, format=kind)
    whole = bytearray(path.read_bytes())
    if size is not None:
        whole[4:8] = size.to_bytes(4, "little")
    path.write_bytes(whole)
    assert len(read_wave(path)) == 16000
    path.write_bytes(whole[:-9000])
    with pytest.raises(DataError, match=r"a\.wav is truncated"):
        read_wave(path)


def test_a_wav_that_does_not_state_its_length_is_refused(tmp_path):
    path = tmp_path / "a.wav"
    soundfile.write(path, np.zeros(16000), 16000)
    whole = bytearray(path.read_bytes())
    at = whole.index(b"data") + 4
    whole[at : at + 4] = b"\xff" * 4
    for content in (whole, whole[:-9000]):
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"a\.wav does not state its length"):
            read_wave(path)


@pytest.mark.parametrize("size", [(1, 20_000), (20_000, 1)])
def test_a_frame_that_would_be_huge_when_resized_is_refused(tmp_path, size):
    Image.new("RGB", size).save(tmp_path / "thin.png")
    with pytest.raises(DataError, match=r"thin\.png: .* too narrow"):
        read_frame(tmp_path / "thin.png")


def test_odd_lines_are_counted_and_shown(tmp_path):
    path = tmp_path / "events.jsonl"
    good = b'{"event": "batch", "batch": 0}\n'
    path.write_bytes(good + b'{"event": "batch", "batch": "x"}\n[]\n' + good)
    feed = LogFeed(path)
    assert len(list(iter(feed.next, None))) == 2
    assert feed.state()["note"].startswith("2 odd lines")
