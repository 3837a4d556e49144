"""The device that a command runs its model on, by name."""

import torch

from dasp.core.errors import OptionError

KNOWN = "auto, cpu, cuda, cuda:1, mps"


def find_device(name: str) -> torch.device:
    """Return a device by name; "auto" is the first of CUDA, MPS and the processor that is here.

    A device that is not here is refused. Forked workers must ask for themselves: a process that
    has used CUDA cannot be forked.
    """
    if name == "auto":
        return torch.device(next(kind for kind in ("cuda", "mps", "cpu") if _count(kind)))
    try:
        device = torch.device(name)
    except RuntimeError:
        raise OptionError(f"--device is one of {KNOWN}, not {name!r}.") from None
    if device.type not in ("cpu", "cuda", "mps"):
        raise OptionError(f"--device is one of {KNOWN}, not {name!r}.")
    count = _count(device.type)
    if (device.index or 0) >= count:
        here = f"it sees {count} of this kind" if count else "there is none, or no torch for it"
        raise OptionError(f"--device {name} is not here: {here}. Use --device auto or cpu.")
    return device


def _count(kind: str) -> int:
    if kind == "cuda":
        return torch.cuda.device_count() if torch.cuda.is_available() else 0
    return int(kind == "cpu" or torch.backends.mps.is_available())
