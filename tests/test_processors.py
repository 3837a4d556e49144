"""The checks of bytes under the instructions of other processors, in processes of their own."""

import os
import subprocess
import sys
from itertools import zip_longest
from pathlib import Path

import pytest
from numpy._core._multiarray_umath import __cpu_dispatch__, __cpu_features__

ROOT = Path(__file__).parent
MARK = "same_bytes"  # of every test that compares data by bytes
CHECKS = sorted(p for p in ROOT.rglob("test_*.py") if f"mark.{MARK}" in p.read_text())
GROUPS = [group for group in __cpu_dispatch__ if __cpu_features__[group]]
# X86_V3 holds AVX2 and all that needs it, X86_V4 AVX-512: without them, an older processor.
# The libraries choose independently, so that each process may try something of each.
OTHERS = [
    {"ATEN_CPU_CAPABILITY": "default"},
    {"ATEN_CPU_CAPABILITY": "avx2"},
    {"OPENBLAS_CORETYPE": "Prescott", "JSIMD_FORCENONE": "1"},
]
WITHOUT = [" ".join(GROUPS), *GROUPS, *[""] * max(0, len(OTHERS) - len(GROUPS) - 1)]
PROCESSORS = {
    f"NumPy without {groups or 'nothing'}, {other}": {"NPY_DISABLE_CPU_FEATURES": groups, **other}
    for groups, other in zip_longest(WITHOUT, OTHERS, fillvalue={})
}


@pytest.mark.parametrize("processor", PROCESSORS)
def test_bytes_are_the_same_with_the_instructions_of(processor):
    command = [sys.executable, "-m", "pytest", "-m", MARK, "-p", "no:cacheprovider", *CHECKS]
    done = subprocess.run(
        command,
        env=os.environ | PROCESSORS[processor],
        cwd=ROOT.parent,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout
