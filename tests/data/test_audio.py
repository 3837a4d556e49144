from pathlib import Path

import kaldi_native_fbank
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file

from dasp.core.errors import InputError, OptionError
from dasp.core.seeding import numpy_generator
from dasp.data.audio import FbankOptions, fbank, log_mel, resample

FIGURES = load_file(Path(__file__).parent / "fbank.safetensors")  # made with torchaudio


def noise(samples, scale=0.1, key="noise"):
    wave = scale * numpy_generator(0, key).standard_normal(samples)
    return torch.from_numpy(wave.astype(np.float32))


def kaldi(wave, sample_rate, options):
    """The same filterbank by Kaldi's own code."""
    settings = kaldi_native_fbank.FbankOptions()
    settings.frame_opts.samp_freq = sample_rate
    settings.frame_opts.dither = 0
    settings.frame_opts.window_type = "hanning"
    settings.frame_opts.frame_shift_ms = options.hop_ms
    settings.frame_opts.frame_length_ms = options.window_ms
    settings.mel_opts.num_bins = options.mel_bins
    computer = kaldi_native_fbank.OnlineFbank(settings)
    mean = wave.mean(dtype=np.float64).astype(np.float32)
    computer.accept_waveform(sample_rate, (wave - mean).tolist())
    computer.input_finished()
    return np.stack([computer.get_frame(i) for i in range(computer.num_frames_ready)])


def test_agrees_with_the_reference_figures():
    error = (fbank(FIGURES["waveform"]) - FIGURES["fbank"]).abs()
    assert error.max() < 1e-3
    assert error.mean() < 1e-5


SIZES = [
    (16000, FbankOptions()),
    (16000, FbankOptions(hop_ms=20.0)),
    (8000, FbankOptions(mel_bins=40)),
    (44100, FbankOptions(mel_bins=80, window_ms=32.0)),
    (22050, FbankOptions(hop_ms=12.5, window_ms=50.0)),
]


def hum(time, generator):
    """Thirty harmonics of a gliding voice that comes and goes."""
    pitch = generator.uniform(90, 130) * time * (1 + 0.1 * time)
    voice = sum(np.sin(2 * np.pi * k * pitch + generator.uniform(0, 6)) / k for k in range(1, 31))
    return 0.2 * voice * np.sin(2 * np.pi * 3 * time) ** 2


SIGNALS = {
    "loud noise": lambda time, generator: generator.standard_normal(time.size),
    "noise": lambda time, generator: 0.1 * generator.standard_normal(time.size) + 0.05,
    "noise of 1e-4": lambda time, generator: 1e-4 * generator.standard_normal(time.size),
    "noise of 1e-6": lambda time, generator: 1e-6 * generator.standard_normal(time.size),
    "clipped noise": lambda time, generator: (2 * generator.standard_normal(time.size)).clip(-1, 1),
    "noise, then silence": lambda time, generator: (
        0.1 * generator.standard_normal(time.size) * (time < 0.2)
    ),
    "voice and noise": lambda time, generator: (
        hum(time, generator) + 1e-3 * generator.standard_normal(time.size)
    ),
    "tone of 1e-4": lambda time, generator: 1e-4 * np.sin(2 * np.pi * 2222 * time),
    "chirp of 1e-4": lambda time, generator: 1e-4 * np.sin(2 * np.pi * (50 + 3500 * time) * time),
    "silence": lambda time, generator: 0 * time,
    "tone": lambda time, generator: 0.5 * np.sin(2 * np.pi * generator.uniform(100, 3900) * time),
    "tone and faint noise": lambda time, generator: (
        0.5 * np.sin(2 * np.pi * generator.uniform(100, 3900) * time)
        + 1e-3 * generator.standard_normal(time.size)
    ),
    "chirp": lambda time, generator: 0.5 * np.sin(2 * np.pi * (50 + 3500 * time) * time),
    "voice": hum,
    "voice of 16 bits": lambda time, generator: np.rint(32768 * hum(time, generator)) / 32768,
}


@pytest.mark.parametrize(("sample_rate", "options"), SIZES)
@pytest.mark.parametrize("kind", SIGNALS)
def test_agrees_with_kaldi(kind, sample_rate, options):
    time = np.arange(sample_rate // 2) / sample_rate
    for seed in range(2):
        wave = SIGNALS[kind](time, numpy_generator(seed, kind)).astype(np.float32)
        ours, theirs = fbank(wave, sample_rate, options).numpy(), kaldi(wave, sample_rate, options)
        error = np.abs(ours - theirs)
        assert error.max() < 2e-4
        assert error.mean() < 1e-6  # a mel bank rounded elsewhere makes 5e-6 of loud noise


def test_silence_is_the_floor():
    energies = fbank(torch.full((800,), 0.25))
    assert torch.equal(energies, torch.full_like(energies, 1.1920928955078125e-07).log())


@settings(deadline=None)
@given(st.integers(400, 4000), st.integers(1, 4))
def test_batch_gives_the_same_numbers(samples, batch):
    waves = noise(batch * samples).view(batch, samples)
    together = fbank(waves)
    assert together.shape == (batch, 1 + (samples - 400) // 160, 128)
    alone = torch.stack([fbank(wave) for wave in waves])
    torch.testing.assert_close(together, alone, rtol=0, atol=2e-6)


@settings(deadline=None)
@given(st.floats(-0.5, 0.5))
def test_an_offset_changes_nothing(offset):
    wave = noise(2000)
    torch.testing.assert_close(fbank(wave + offset), fbank(wave), rtol=0, atol=2e-2)


@settings(deadline=None)
@given(st.sampled_from([0.25, 0.5, 2.0]))
def test_doubling_the_amplitude_adds_log_four(factor):
    wave = noise(2000)
    shift = 2 * np.log(factor)
    before, after = fbank(wave), fbank(wave * factor)
    heard = before > -10  # the narrowest triangles hold no FFT bin and stay at the floor
    assert heard.float().mean() > 0.9
    torch.testing.assert_close(after[heard], before[heard] + shift, rtol=0, atol=1e-4)


def test_a_tone_lands_in_its_mel_bin():
    time = torch.arange(16000) / 16000
    mel = 1127 * np.log(1 + np.array([20, 8000, 1000]) / 700)
    expected = (mel[2] - mel[0]) / (mel[1] - mel[0]) * 129 - 1
    peak = fbank(0.3 * torch.sin(2 * torch.pi * 1000 * time)).mean(0).argmax()
    assert abs(int(peak) - expected) <= 1


def test_numpy_and_float64_give_the_same_as_a_tensor():
    wave = noise(1000)
    assert torch.equal(fbank(wave.numpy()), fbank(wave))
    assert torch.equal(fbank(wave.double()), fbank(wave))


def test_read_only_and_reversed_arrays_are_taken():
    wave = noise(1000).numpy()
    wave.setflags(write=False)
    assert torch.equal(fbank(wave[::-1]), fbank(wave[::-1].copy()))


def test_gradients_after_a_first_call_without_them():
    options = FbankOptions(mel_bins=11, window_ms=26.0)
    wave = noise(1000)
    with torch.inference_mode():
        fbank(wave, options=options)
    wave.requires_grad_()
    fbank(wave, options=options).sum().backward()
    assert wave.grad is not None
    assert wave.grad.abs().sum() > 0


def test_input_is_left_alone():
    wave = noise(1000) + 0.3
    before = wave.clone()
    log_mel(wave, frames=2)
    assert torch.equal(wave, before)


def test_log_mel_pads_before_normalising():
    model_input = log_mel(noise(16000))
    assert model_input.shape == (1024, 128)
    assert model_input.dtype == torch.float32
    filling = torch.full((1024 - 98, 128), 5.081 / 4.4849)
    torch.testing.assert_close(model_input[98:], filling)
    torch.testing.assert_close(model_input[:98] * 4.4849 - 5.081, fbank(noise(16000)))


def test_log_mel_cuts_and_takes_batches_and_other_sizes():
    wave = noise(48000)
    assert torch.equal(log_mel(wave, frames=64), log_mel(wave)[:64])
    options = FbankOptions(hop_ms=20.0)
    assert log_mel(wave.view(2, -1), frames=64, options=options).shape == (2, 64, 128)


def test_too_short_a_wave_is_named():
    with pytest.raises(InputError, match="399 samples is shorter than one window of 400"):
        fbank(torch.zeros(399))
    assert fbank(torch.zeros(400)).shape == (1, 128)


@pytest.mark.parametrize(
    "wave", [torch.zeros(500, dtype=torch.int16), torch.zeros(1, 1, 500), np.float32(1)]
)
def test_other_shapes_and_types_are_refused(wave):
    with pytest.raises(InputError, match="float array"):
        fbank(wave)


@pytest.mark.parametrize("options", [{"mel_bins": 0}, {"hop_ms": 0.0}, {"window_ms": -1.0}])
def test_impossible_options_are_refused(options):
    with pytest.raises(OptionError, match="sizes above zero"):
        FbankOptions(**options)


def test_impossible_rates_and_frames_are_refused():
    with pytest.raises(OptionError, match="too low"):
        fbank(torch.zeros(500), sample_rate=30)
    with pytest.raises(OptionError, match="frames"):
        log_mel(torch.zeros(500), frames=0)


def test_resample_is_offered_here():
    assert resample(np.zeros(441, np.float32), 44100, 16000).shape == (160,)
