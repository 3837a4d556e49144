import sys

import numpy as np
import pytest
import soundfile
from hypothesis import given
from hypothesis import strategies as st

from dasp.core.errors import DataError
from dasp.core.sound import from_pcm16, pcm16
from dasp.data.media import (
    decode_frames,
    decode_sound,
    extra,
    read_wave,
    write_wave,
)


def test_what_is_written_is_read_back(tmp_path, media):
    samples = pcm16(media.tone())
    write_wave(tmp_path / "a.wav", samples)
    assert np.array_equal(read_wave(tmp_path / "a.wav"), from_pcm16(samples))


@given(st.floats(-3, 3, width=32))
def test_sixteen_bits_round_and_clip(value):
    back = from_pcm16(pcm16(np.array([value], np.float32)))[0]
    assert abs(back - np.clip(value, -1, 32767 / 32768)) <= 0.5 / 32768


@pytest.mark.parametrize(("rate", "channels"), [(44100, 2), (44100, 1), (16000, 2), (8000, 1)])
def test_another_rate_or_stereo_is_refused_by_name(tmp_path, rate, channels):
    soundfile.write(tmp_path / "a.wav", np.zeros((rate, channels)), rate)
    with pytest.raises(DataError, match=rf"a\.wav has {rate} Hz and {channels} channel"):
        read_wave(tmp_path / "a.wav")


@pytest.mark.parametrize("samples", [0, 399])
def test_no_sound_or_hardly_any_is_refused_by_name(tmp_path, samples):
    soundfile.write(tmp_path / "a.wav", np.zeros(samples), 16000)
    with pytest.raises(DataError, match=rf"a\.wav holds {samples} samples"):
        read_wave(tmp_path / "a.wav")


def test_missing_foreign_and_cut_off_files_are_named(tmp_path, media):
    with pytest.raises(DataError, match=r"no sound .*nothing\.wav"):
        read_wave(tmp_path / "nothing.wav")
    (tmp_path / "a.wav").write_bytes(b"this is not a sound file")
    with pytest.raises(DataError, match=r"cannot read the sound .*a\.wav"):
        read_wave(tmp_path / "a.wav")
    write_wave(tmp_path / "b.wav", pcm16(media.tone()))
    whole = (tmp_path / "b.wav").read_bytes()
    (tmp_path / "b.wav").write_bytes(whole[:-2])
    with pytest.raises(DataError, match=r"b\.wav is cut off"):
        read_wave(tmp_path / "b.wav")


def test_values_that_are_not_numbers_are_refused(tmp_path):
    wave = np.zeros(1000, np.float32)
    wave[7] = np.nan
    soundfile.write(tmp_path / "a.wav", wave, 16000, subtype="FLOAT")
    with pytest.raises(DataError, match=r"a\.wav holds values that are not numbers"):
        read_wave(tmp_path / "a.wav")


def test_a_video_gives_ten_frames_in_order_and_its_sound(tmp_path, media):
    media.write_video(tmp_path / "a.mp4", seconds=1.0, pitch=440)
    frames = decode_frames(tmp_path / "a.mp4", 10)
    for number, frame in enumerate(frames):  # 20 pictures: frame i is picture 2i
        distances = [
            np.abs(np.array(frame).astype(int) - media.picture(i)).mean() for i in range(20)
        ]
        assert int(np.argmin(distances)) == 2 * number
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
    found = []
    for frame in decode_frames(tmp_path / "a.mp4", 10):
        pictures = range(round(seconds * rate))
        distances = [
            np.abs(np.array(frame).astype(int) - media.picture(i)).mean() for i in pictures
        ]
        found.append(int(np.argmin(distances)))
    assert found == shown


@pytest.mark.parametrize("pictures", [1, 5, 7])
def test_pictures_that_end_before_the_promised_length_are_refused(
    tmp_path, media, monkeypatch, pictures
):
    media.write_video(tmp_path / "a.mp4", pictures / 10, rate=10)
    monkeypatch.setattr("dasp.data.media._length", lambda container, stream: 1.0)
    with pytest.raises(DataError, match=rf"1\.0 s .* promised and 0\.{pictures} s are there"):
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
    with pytest.raises(DataError, match=r"mute\.mp4 holds no sound"):
        decode_sound(tmp_path / "mute.mp4")
    write_wave(tmp_path / "blind.wav", pcm16(media.tone()))
    with pytest.raises(DataError, match=r"blind\.wav holds no pictures"):
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
