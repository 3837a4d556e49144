from pathlib import Path

import kaldi_native_fbank
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from safetensors.torch import load_file

from dasp.core.errors import InputError, OptionError
from dasp.core.seeding import numpy_generator
from dasp.data.features import MEAN, STD, corruption_image, fbank, frame_tensor, log_mel

FIGURES = load_file(Path(__file__).parent / "fbank.safetensors")  # made with torchaudio


def noise(samples, scale=0.1, key="noise"):
    wave = scale * numpy_generator(0, key).standard_normal(samples)
    return torch.from_numpy(wave.astype(np.float32))


def kaldi(wave, sample_rate, hop_ms):
    """The same filterbank by Kaldi's own code."""
    settings = kaldi_native_fbank.FbankOptions()
    settings.frame_opts.samp_freq = sample_rate
    settings.frame_opts.dither = 0
    settings.frame_opts.window_type = "hanning"
    settings.frame_opts.frame_shift_ms = hop_ms
    settings.mel_opts.num_bins = 128
    computer = kaldi_native_fbank.OnlineFbank(settings)
    mean = wave.mean(dtype=np.float64).astype(np.float32)
    computer.accept_waveform(sample_rate, (wave - mean).tolist())
    computer.input_finished()
    return np.stack([computer.get_frame(i) for i in range(computer.num_frames_ready)])


def test_agrees_with_the_reference_figures():
    error = (fbank(FIGURES["waveform"]) - FIGURES["fbank"]).abs()
    assert error.max() < 1e-3
    assert error.mean() < 1e-5


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


@pytest.mark.parametrize(("rate", "hop_ms"), [(16000, 10), (16000, 20), (44100, 10), (8000, 12.5)])
@pytest.mark.parametrize("kind", SIGNALS)
def test_agrees_with_kaldi(kind, rate, hop_ms):
    time = np.arange(rate // 2) / rate
    for seed in range(2):
        wave = SIGNALS[kind](time, numpy_generator(seed, kind)).astype(np.float32)
        error = np.abs(fbank(wave, rate, hop_ms).numpy() - kaldi(wave, rate, hop_ms))
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


def test_arrays_and_float64_give_the_same_as_a_tensor():
    assert torch.equal(fbank(noise(1000).numpy()), fbank(noise(1000)))
    assert torch.equal(fbank(noise(1000).double()), fbank(noise(1000)))
    wave = noise(1000).numpy()
    wave.setflags(write=False)
    assert torch.equal(fbank(wave[::-1]), fbank(wave[::-1].copy()))


def test_gradients_after_a_first_call_without_them():
    wave = noise(1000)
    with torch.inference_mode():
        fbank(wave, 12345)
    wave.requires_grad_()
    fbank(wave, 12345).sum().backward()
    assert wave.grad is not None
    assert wave.grad.abs().sum() > 0


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
    assert log_mel(wave.view(2, -1), frames=64, hop_ms=20.0).shape == (2, 64, 128)


def test_other_waves_and_options_are_refused():
    assert fbank(torch.zeros(400)).shape == (1, 128)
    with pytest.raises(InputError, match="399 samples is shorter than one window of 400"):
        fbank(torch.zeros(399))
    for wave in (torch.zeros(500, dtype=torch.int16), torch.zeros(1, 1, 500), np.float32(1)):
        with pytest.raises(InputError, match="float array"):
            fbank(wave)
    for sample_rate, hop_ms in ((30, 10), (16000, 0)):
        with pytest.raises(OptionError, match="too low"):
            fbank(torch.zeros(500), sample_rate, hop_ms)
    with pytest.raises(OptionError, match="frames"):
        log_mel(torch.zeros(500), frames=0)


@given(st.integers(40, 700), st.integers(40, 700))
def test_any_size_becomes_the_size_of_the_model(width, height):
    frame = Image.new("RGB", (width, height), (255, 0, 0))
    tensor = frame_tensor(frame)
    assert tensor.shape == (3, 224, 224)
    assert corruption_image(frame).shape == (224, 224, 3)
    red = torch.tensor([(1 - MEAN[0]) / STD[0], -MEAN[1] / STD[1], -MEAN[2] / STD[2]])
    assert torch.allclose(tensor, red.view(3, 1, 1).expand(3, 224, 224), atol=1e-6)


def test_a_frame_of_the_right_size_is_only_scaled(media):
    pixels = media.picture(0, 224, 224)
    restored = frame_tensor(Image.fromarray(pixels)).permute(1, 2, 0) * torch.tensor(STD)
    restored = (restored + torch.tensor(MEAN)) * 255
    assert np.array_equal(restored.round().numpy().astype(np.uint8), pixels)


def test_the_damaged_image_sees_less_at_the_borders_than_the_clean_one(media):
    frame = Image.fromarray(media.picture(0, 512, 512))
    small = frame.resize((256, 256), Image.Resampling.BILINEAR)
    assert np.array_equal(corruption_image(frame), np.array(small)[16:240, 16:240])
