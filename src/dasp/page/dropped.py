"""Samples that a user drops on the page: files to inputs of the model's kind."""

from collections.abc import Callable, Mapping
from io import BytesIO
from pathlib import PurePath

import numpy as np
import safetensors.torch
import torch
from torch import Tensor

from dasp.core.errors import InputError, cause
from dasp.core.types import Inputs

Reader = Callable[[Mapping[str, bytes]], Inputs]
"""Turns files {name: bytes} into inputs {modality: (…) or (1, …)}."""


def read_arrays(files: Mapping[str, bytes]) -> dict[str, Tensor]:
    """Read .npz and .safetensors with one array per modality, and .npy named by modality."""
    found: dict[str, Tensor] = {}
    for name, content in files.items():
        try:
            match PurePath(name).suffix.lower():
                case ".npz":
                    with np.load(BytesIO(content), allow_pickle=False) as arrays:
                        found |= {key: torch.from_numpy(arrays[key]) for key in arrays.files}
                case ".npy":
                    array = np.load(BytesIO(content), allow_pickle=False)
                    found[PurePath(name).stem] = torch.from_numpy(array)
                case ".safetensors":
                    found |= safetensors.torch.load(content)
                case _:
                    raise InputError(
                        f"{name}: drop .npz, .npy or .safetensors with one array per modality, or "
                        "give dasp.page.serve a function for your files: read=."
                    )
        except InputError:
            raise
        except Exception as error:  # whatever a damaged file makes numpy or safetensors raise
            raise InputError(f"cannot read {name}: {cause(error)}.") from error
    return found


def fitting(inputs: Inputs, example: Inputs) -> dict[str, Tensor]:
    """Return a sample as a batch of one, of the shapes and types of an example batch."""
    batch = {}
    for name, value in inputs.items():
        if name not in example:
            raise InputError(f"'{name}' is not a modality of the stream: {', '.join(example)}.")
        shape = tuple(example[name].shape[1:])
        given = tuple(value.shape)
        if given not in (shape, (1, *shape)):
            raise InputError(f"'{name}' has shape {given}; samples of the stream have {shape}.")
        like = example[name]
        batch[name] = value.reshape(1, *shape).to(dtype=like.dtype, device=like.device)
    if not batch:
        raise InputError("the files hold no arrays: name them by modality.")
    return batch
