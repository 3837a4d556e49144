"""Turn arrays into what a browser can show and play: PNG data URLs and WAV files."""

import base64
import wave
from io import BytesIO

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from dasp.core.extras import Pillow
from dasp.core.sound import pcm16

SIDE = 128  # maximum pixels of a picture's longer side
# From dark to light through blue, magenta and orange: lightness alone shows the order.
RAMP = ((8, 8, 29), (54, 21, 107), (130, 37, 129), (205, 64, 113), (249, 141, 92), (252, 244, 190))
STOPS = np.linspace(0, 255, len(RAMP))
PALETTE = np.stack([np.interp(np.arange(256), STOPS, one) for one in np.array(RAMP).T], axis=-1)


def frame_picture(frame: NDArray[np.uint8]) -> str:
    """Return an (H, W, 3) frame as a data URL."""
    return _data_url(Pillow.fromarray(frame))


def heat_picture(values: NDArray[np.float32]) -> str:
    """Return a (time, pitch) array such as a log-mel as a data URL; time runs to the right."""
    turned = np.flipud(values.T)
    low, high = np.percentile(turned, (1, 99.5))
    share = np.clip((turned - low) / max(float(high - low), 1e-9), 0, 1)
    picture = Pillow.fromarray((share * 255).astype(np.uint8))
    # One byte per pixel: these pictures would be half of a message.
    picture.putpalette(PALETTE.astype(np.uint8).tobytes())
    return _data_url(picture)


def input_picture(values: Tensor) -> str | None:
    """Return a picture of one sample's input, (3, H, W), (1, H, W) or (T, F); None for others."""
    array = values.detach().float().cpu().numpy()
    if not np.isfinite(array).all() or array.size == 0:
        return None
    if array.ndim == 3 and array.shape[0] == 3:
        low, high = float(array.min()), float(array.max())
        scaled = (array - low) / max(high - low, 1e-9) * 255
        return frame_picture(np.moveaxis(scaled, 0, -1).astype(np.uint8).copy())
    if array.ndim == 3 and array.shape[0] == 1:
        return heat_picture(np.flipud(array[0]).T)
    return heat_picture(array) if array.ndim == 2 else None


def wav_file(samples: NDArray[np.float32], rate: int = 16000) -> bytes:
    """Return (samples,) within ±1 as a 16-bit mono WAV file."""
    file = BytesIO()
    with wave.open(file, "wb") as wav:
        wav.setparams((1, 2, rate, 0, "NONE", "not compressed"))
        wav.writeframes(pcm16(samples).tobytes())
    return file.getvalue()


def _data_url(image: Pillow.Image) -> str:
    if max(image.size) > SIDE:
        image = image.convert("RGB")
        image.thumbnail((SIDE, SIDE))
    file = BytesIO()
    image.save(file, "PNG")
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()
