import numpy as np
import pytest

from dasp.core.seeding import numpy_generator
from dasp.data.shapes.classes import FLAVOURS, VOICES, Flavour
from dasp.data.shapes.room import EVENT_RMS, GAIN, draw_wave
from dasp.data.shapes.voices import RATE, play


@pytest.mark.parametrize("voice", VOICES, ids=str)
def test_an_event_has_its_length_and_level(voice):
    event = play(numpy_generator(0, "event"), voice)
    assert 0.45 * RATE <= event.size <= 0.9 * RATE
    assert np.sqrt(np.mean(event**2)) == pytest.approx(1, abs=1e-3)
    assert abs(event[0]) < 1e-3


@pytest.mark.parametrize(("snr", "quiet"), [(-8.0, False), (60.0, True)])
def test_the_room_is_as_loud_as_its_ratio_says(snr, quiet):
    fixed = Flavour((14, 23), (1, 1), (0, 0), (snr, snr), 0)
    room = draw_wave(numpy_generator(0, "room"), None, fixed)
    level = 20 * np.log10(np.sqrt(np.mean(room**2)) / EVENT_RMS)
    assert level == pytest.approx(-snr, abs=GAIN + 0.1)
    assert bool(room.std() < 0.01) is quiet


def test_an_event_stands_out_of_a_quiet_room():
    fixed = Flavour((14, 23), (1, 1), (0, 0), (40, 40), 0)
    waves = [draw_wave(numpy_generator(0, str(i)), VOICES[i], fixed) for i in range(36)]
    loud = [np.sqrt(np.mean(wave[np.abs(wave) > 0.005] ** 2)) for wave in waves]
    assert 20 * np.log10(np.median(loud) / EVENT_RMS) == pytest.approx(0, abs=3)


def test_sounds_never_leave_full_scale():
    for index in range(40):
        wave = draw_wave(numpy_generator(1, str(index)), VOICES[index % 36], FLAVOURS["balanced"])
        assert np.abs(wave).max() <= 1
