"""From a picture file to what a model sees, and to what corruptions are made on."""

import warnings
from io import BytesIO
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from dasp.core.errors import DataError
from dasp.data.causes import cause

SIDE = 224
CORRUPTION_SIDE = 256  # frames are reduced to this before the crop that is damaged
JPEG_QUALITY = 85
MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)


def read_frame(path: str | Path | BytesIO, name: str = "") -> Image.Image:
    """Read a picture as RGB. Colour and grey pictures are taken, anything else is refused.

    A palette, transparency, CMYK or 16 bits a channel would need a guess about colours, and
    such files are no frames of a video: converting them is left to the user.
    """
    what = name or str(path)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(path) as picture:
                picture.load()
                mode = picture.mode
                rgb = picture.convert("RGB") if mode in ("RGB", "L") else None
    except FileNotFoundError as error:
        raise DataError(
            f"no frame {what}: run 'dasp data check' to list what is missing."
        ) from error
    except UnidentifiedImageError as error:
        raise DataError(f"cannot read the frame {what}: no picture; make it again.") from error
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError, Warning) as error:
        raise DataError(f"cannot read the frame {what}: {cause(error)}; make it again.") from error
    if rgb is None:
        raise DataError(
            f"the frame {what} has colour mode {mode}, where 8-bit RGB or grey is expected: "
            "convert it first, for instance with Pillow's Image.open(...).convert('RGB')."
        )
    return rgb


def frame_tensor(frame: Image.Image) -> torch.Tensor:
    """Return the model's input (3, 224, 224): shorter side to 224 bicubic, centre crop, scaled.

    >>> frame_tensor(Image.new("RGB", (640, 360))).shape
    torch.Size([3, 224, 224])
    """
    cropped = centre_crop(shorter_side(frame, SIDE, Image.Resampling.BICUBIC), SIDE)
    pixels = torch.from_numpy(np.array(cropped)).permute(2, 0, 1).float() / 255  # (3, 224, 224)
    return (pixels - torch.tensor(MEAN).view(3, 1, 1)) / torch.tensor(STD).view(3, 1, 1)


def corruption_image(frame: Image.Image) -> NDArray[np.uint8]:
    """Return the (224, 224, 3) image that is damaged: shorter side to 256, centre crop 224."""
    reduced = shorter_side(frame, CORRUPTION_SIDE, Image.Resampling.BILINEAR)
    return np.array(centre_crop(reduced, SIDE))


def shorter_side(frame: Image.Image, side: int, resample: Image.Resampling) -> Image.Image:
    """Resize so that the shorter side is `side`; the longer one is rounded down."""
    width, height = frame.size
    short, long = sorted((width, height))
    if short == side:
        return frame
    other = max(side, side * long // short)
    size = (side, other) if width <= height else (other, side)
    return frame.resize(size, resample)


def centre_crop(frame: Image.Image, side: int) -> Image.Image:
    """Cut the middle `side` × `side` pixels."""
    left, top = round((frame.width - side) / 2), round((frame.height - side) / 2)
    return frame.crop((left, top, left + side, top + side))


def jpeg(image: NDArray[np.uint8], quality: int = JPEG_QUALITY) -> bytes:
    """Encode an (H, W, 3) image as the releases save their corrupted frames."""
    buffer = BytesIO()
    Image.fromarray(image).save(buffer, "JPEG", quality=quality, optimize=True)
    return buffer.getvalue()
