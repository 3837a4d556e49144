"""What a figure was measured on: `python benchmarks/machine.py` prints it. No names, no paths."""

import os
import platform
import sys
from pathlib import Path

import numpy as np
import torch

from dasp.data.parallel import cores

# What decides the speed of float32, bfloat16 and int8 arithmetic.
INSTRUCTION_SETS = (
    "avx2", "fma", "avx512f", "avx512_vnni", "avx512_bf16", "amx_tile", "amx_bf16", "amx_int8",
    "asimd", "bf16", "i8mm", "sve",
)  # fmt: skip
LOAD_AT_START = os.getloadavg() if hasattr(os, "getloadavg") else (0.0, 0.0, 0.0)


def machine() -> dict[str, object]:
    """Return the machine, the versions, and how busy it was when this process began."""
    flags = set(_processor("flags").split() or _processor("Features").split())
    return {
        "processor": _processor("model name") or platform.processor() or platform.machine(),
        "cores": cores(),
        "threads": torch.get_num_threads(),
        "memory_gib": round(_memory() / 2**30, 1),
        "instruction_sets": [name for name in INSTRUCTION_SETS if name in flags],
        "torch_uses": torch.backends.cpu.get_cpu_capability(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "load_at_start": [round(load, 2) for load in LOAD_AT_START],
    }


def _processor(field: str) -> str:
    """Return the first such line of Linux' description of the processor, or nothing."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(field)), "")


def _memory() -> int:
    if sys.platform == "win32":
        return 0
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


if __name__ == "__main__":
    for key, value in machine().items():
        print(f"{key:18}{value}")
