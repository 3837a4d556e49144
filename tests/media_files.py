"""Small real media for the tests: videos, sounds and pictures, drawn from a seed."""

from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import soundfile
from PIL import Image

RATE = 16000


def tone(seconds: float = 1.0, pitch: float = 440.0, rate: int = RATE) -> np.ndarray:
    """A quiet tone with a little noise, float32."""
    time = np.arange(int(seconds * rate)) / rate
    noise = np.random.default_rng(int(pitch)).normal(size=len(time))
    return (0.2 * np.sin(2 * np.pi * pitch * time) + 0.01 * noise).astype(np.float32)


def picture(index: int = 0, width: int = 96, height: int = 72) -> np.ndarray:
    """Colour ramps that differ by index, (height, width, 3) uint8."""
    rows, columns = np.mgrid[:height, :width]
    ramps = [rows * 255 // height, columns * 255 // width, (rows + columns + 40 * index) % 256]
    return np.stack(ramps, axis=-1).astype(np.uint8)


def write_video(
    path: Path, seconds: float = 1.0, pitch: float = 440.0, sound: bool = True, rate: int = 20
) -> None:
    """An mp4 of 96x72 pictures, `rate` a second, its index at the front; sound 44.1 kHz stereo."""
    path.parent.mkdir(parents=True, exist_ok=True)
    options = {"movflags": "faststart"} if path.suffix == ".mp4" else {}
    with av.open(str(path), "w", options=options) as container:
        video = container.add_stream("mpeg4", rate=rate)
        video.width, video.height, video.pix_fmt = 96, 72, "yuv420p"
        audio = container.add_stream("aac", rate=44100, layout="stereo") if sound else None
        for index in range(round(seconds * rate)):
            frame = av.VideoFrame.from_ndarray(picture(index), format="rgb24")
            container.mux(video.encode(frame))
        container.mux(video.encode(None))
        if audio is not None:
            wave = np.stack([tone(seconds, pitch, 44100)] * 2)
            frame = av.AudioFrame.from_ndarray(wave, format="fltp", layout="stereo")
            frame.sample_rate, frame.time_base, frame.pts = 44100, Fraction(1, 44100), 0
            container.mux(audio.encode(frame))
            container.mux(audio.encode(None))


def write_folders(root: Path, per_class: int = 2, seconds: float = 0.5) -> Path:
    """The plain layout with classes cat and dog: lossless pictures, 16-bit sounds."""
    for number, name in enumerate(("cat", "dog")):
        folder = root / name
        folder.mkdir(parents=True)
        for index in range(per_class):
            image = picture(10 * number + index, 300, 260)
            Image.fromarray(image).save(folder / f"{name}{index}.png")
            wave = tone(seconds, 300 + 100 * number + 50 * index)
            soundfile.write(folder / f"{name}{index}.wav", wave, RATE, subtype="PCM_16")
    return root
