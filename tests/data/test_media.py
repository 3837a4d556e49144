import sys

import numpy as np
import pytest
import soundfile
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from dasp.core.errors import DataError
from dasp.core.extras import extra
from dasp.core.sound import from_pcm16, pcm16
from dasp.data.media import decode_frames, decode_sound, jpeg, read_frame, read_wave, write_wave


def test_what_is_written_is_read_back(tmp_path, media):
    samples = pcm16(media.tone())
    write_wave(tmp_path / "a.wav", samples)
    assert np.array_equal(read_wave(tmp_path / "a.wav"), from_pcm16(samples))


@given(st.floats(-3, 3, width=32))
def test_sixteen_bits_round_and_clip(value):
    back = from_pcm16(pcm16(np.array([value], np.float32)))[0]
    assert abs(back - np.clip(value, -1, 32767 / 32768)) <= 0.5 / 32768


@pytest.mark.parametrize(
    ("wave", "rate", "fault"),
    [
        (np.zeros((44100, 2)), 44100, "has 44100 Hz and 2 channel"),
        (np.zeros((16000, 2)), 16000, "has 16000 Hz and 2 channel"),
        (np.zeros(8000), 8000, "has 8000 Hz and 1 channel"),
        (np.zeros(0), 16000, "has 0 samples"),
        (np.zeros(399), 16000, "has 399 samples"),
        (np.array([0.0] * 999 + [np.nan]), 16000, "contains NaN"),
    ],
)
def test_other_sounds_are_refused_by_name(tmp_path, wave, rate, fault):
    soundfile.write(tmp_path / "a.wav", wave, rate, subtype="FLOAT")
    with pytest.raises(DataError, match=rf"a\.wav {fault}"):
        read_wave(tmp_path / "a.wav")


def test_missing_foreign_and_truncated_files_are_named(tmp_path, media):
    with pytest.raises(DataError, match=r"no sound .*nothing\.wav"):
        read_wave(tmp_path / "nothing.wav")
    (tmp_path / "a.wav").write_bytes(b"this is not a sound file")
    with pytest.raises(DataError, match=r"cannot read the sound .*a\.wav"):
        read_wave(tmp_path / "a.wav")
    write_wave(tmp_path / "b.wav", pcm16(media.tone()))
    whole = (tmp_path / "b.wav").read_bytes()
    (tmp_path / "b.wav").write_bytes(whole[:-2])
    with pytest.raises(DataError, match=r"b\.wav is truncated"):
        read_wave(tmp_path / "b.wav")
    with pytest.raises(DataError, match=r"no frame .*nothing\.jpg"):
        read_frame(tmp_path / "nothing.jpg")
    whole = jpeg(media.picture(0, 224, 224))
    for content in (b"", b"no picture", whole[: len(whole) // 2]):
        (tmp_path / "bad.jpg").write_bytes(content)
        with pytest.raises(DataError, match=r"cannot read the frame .*bad\.jpg"):
            read_frame(tmp_path / "bad.jpg")


def test_grey_becomes_three_equal_channels(tmp_path):
    Image.new("L", (20, 10), 77).save(tmp_path / "grey.png")
    assert np.array(read_frame(tmp_path / "grey.png")).tolist() == [[[77] * 3] * 20] * 10


@pytest.mark.parametrize("mode", ["P", "RGBA", "LA", "1", "I;16", "CMYK"])
def test_other_colour_modes_are_refused_by_name(tmp_path, mode):
    path = tmp_path / ("frame.tif" if mode == "CMYK" else "frame.png")
    Image.new(mode, (32, 32)).save(path)
    with pytest.raises(DataError, match=rf"frame\.\w+ has colour mode {mode}"):
        read_frame(path)


def nearest(frame, media, count):
    """The number of the picture that a decoded frame shows."""
    pixels = np.array(frame).astype(int)
    return int(np.argmin([np.abs(pixels - media.picture(i)).mean() for i in range(count)]))


def test_a_video_gives_ten_frames_in_order_and_its_sound(tmp_path, media):
    media.write_video(tmp_path / "a.mp4", seconds=1.0, pitch=440)
    frames = decode_frames(tmp_path / "a.mp4", 10)
    assert [nearest(frame, media, 20) for frame in frames] == list(range(0, 20, 2))
    sound = from_pcm16(decode_sound(tmp_path / "a.mp4"))
    assert abs(len(sound) - 16000) < 800
    spectrum = np.abs(np.fft.rfft(sound))
    assert abs(np.argmax(spectrum) * 16000 / len(sound) - 440) < 2


def test_only_the_first_ten_seconds_count(tmp_path, media):
    media.write_video(tmp_path / "a.mp4", seconds=12)
    assert len(decode_sound(tmp_path / "a.mp4")) == 160000
    ninth = np.array(decode_frames(tmp_path / "a.mp4", 10)[9]).astype(int)
    assert np.abs(ninth - media.picture(180)).mean() < 8


@pytest.mark.parametrize(
    ("seconds", "rate", "shown"),
    [
        (0.3, 10, [0, 1, 1, 1, 2, 2, 2, 2, 2, 2]),
        (0.4, 10, [0, 1, 1, 2, 2, 2, 3, 3, 3, 3]),
        (0.5, 10, [0, 1, 1, 2, 2, 3, 3, 4, 4, 4]),
        (4, 1, [0, 1, 1, 2, 2, 2, 3, 3, 3, 3]),
        (1, 1, [0] * 10),
    ],
)
def test_the_last_of_few_pictures_lasts_to_the_end(tmp_path, media, seconds, rate, shown):
    media.write_video(tmp_path / "a.mp4", seconds, rate=rate)
    frames = decode_frames(tmp_path / "a.mp4", 10)
    assert [nearest(frame, media, round(seconds * rate)) for frame in frames] == shown


@pytest.mark.parametrize("pictures", [1, 5, 7])
def test_pictures_that_end_before_the_promised_length_are_refused(
    tmp_path, media, monkeypatch, pictures
):
    media.write_video(tmp_path / "a.mp4", pictures / 10, rate=10)
    monkeypatch.setattr("dasp.data.media._length", lambda container, stream: 1.0)
    with pytest.raises(DataError, match=rf"0\.{pictures} s of 1\.0 s of pictures"):
        decode_frames(tmp_path / "a.mp4", 10)


@pytest.mark.parametrize("part", [0.0, 0.05, 0.5, 0.97])
def test_a_cut_off_video_is_refused_by_name(tmp_path, media, part):
    media.write_video(tmp_path / "a.mp4")
    whole = (tmp_path / "a.mp4").read_bytes()
    (tmp_path / "a.mp4").write_bytes(whole[: int(part * len(whole))])
    with pytest.raises(DataError, match=r"a\.mp4"):
        decode_frames(tmp_path / "a.mp4", 10)
    with pytest.raises(DataError, match=r"a\.mp4"):
        decode_sound(tmp_path / "a.mp4")


def test_another_container_under_the_name_is_read_all_the_same(tmp_path, media):
    media.write_video(tmp_path / "a.mkv")
    (tmp_path / "a.mkv").replace(tmp_path / "a.mp4")
    assert len(decode_frames(tmp_path / "a.mp4", 10)) == 10
    assert len(decode_sound(tmp_path / "a.mp4")) > 15000


def test_a_video_without_sound_and_a_sound_without_pictures(tmp_path, media):
    media.write_video(tmp_path / "mute.mp4", sound=False)
    with pytest.raises(DataError, match=r"mute\.mp4 has no sound"):
        decode_sound(tmp_path / "mute.mp4")
    write_wave(tmp_path / "blind.wav", pcm16(media.tone()))
    with pytest.raises(DataError, match=r"blind\.wav has no pictures"):
        decode_frames(tmp_path / "blind.wav", 10)


@pytest.mark.parametrize("module", ["av", "soundfile"])
def test_a_missing_extra_says_how_to_install_it(monkeypatch, module):
    monkeypatch.setitem(sys.modules, module, None)
    clone = r"\.venv/bin/pip install -c constraints\.txt -e '\.\[media\]'"
    with pytest.raises(DataError, match=rf"pip install 'dasp-tta\[media\]'.* clone {clone}"):
        extra(module)


@pytest.mark.parametrize("reader", [decode_sound, read_wave, lambda path: decode_frames(path, 10)])
def test_a_file_is_named_once(tmp_path, reader):
    (tmp_path / "bad.mp4").write_bytes(b"x" * 100)
    with pytest.raises(DataError) as refusal:
        reader(tmp_path / "bad.mp4")
    assert str(refusal.value).count("bad.mp4") == 1
    assert "Errno" not in str(refusal.value)
