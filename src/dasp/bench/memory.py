"""How much memory this process holds, and held at most."""

import resource
import sys
from contextlib import suppress
from pathlib import Path

STATUS, REFERENCES = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def resident_mib() -> float | None:
    """Return what this process holds in memory now, in MiB; None where the system doesn't tell."""
    return _status("VmRSS")


def peak_mib() -> float:
    """Return the most that this process held since `forget_peak`, or since its start."""
    peak = _status("VmHWM")
    if peak is None:
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most / (2**20 if sys.platform == "darwin" else 2**10)
    return peak


def forget_peak() -> None:
    """Begin the peak anew, where the system allows it."""
    with suppress(OSError):
        REFERENCES.write_text("5")


def _status(name: str) -> float | None:
    # Not ru_maxrss: that of a new process begins with what its parent held.
    if not STATUS.exists():
        return None
    lines = STATUS.read_text().splitlines()
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith(name)), None)
