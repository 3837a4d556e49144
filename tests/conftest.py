"""What several rooms share: reference figures, media files, a toy model and batches for it."""

import json
import os
import signal
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest
import torch
from hypothesis import settings
from safetensors.torch import load_file

import dasp
from dasp.models import Toy
from dasp.streams.synthetic import CLEAN, SyntheticWorld

# A shell that starts pytest in the background lets it, and all that it starts, ignore Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Some virtual machines offer AMX, and kill the process that uses it. oneDNN, which multiplies
# 16-bit numbers for torch, reads this variable when it is first used.
TILES, CPUS = "ONEDNN_MAX_CPU_ISA", Path("/proc/cpuinfo")
PRODUCT = (
    "import torch; a = torch.ones(64, 64, dtype=torch.bfloat16); torch.nn.functional.linear(a, a)"
)
if TILES not in os.environ and CPUS.is_file() and "amx_tile" in CPUS.read_text():
    died = subprocess.run([sys.executable, "-c", PRODUCT]).returncode == -signal.SIGILL
    os.environ[TILES] = "AVX512_CORE_FP16" if died else "DEFAULT"

# A busy machine is no reason to fail: no test is timed. Examples differ from run to run, so few are
# enough for each; DASP_EXAMPLES=1000 looks harder.
examples = int(os.environ.get("DASP_EXAMPLES", "30"))
settings.register_profile("untimed", deadline=None, max_examples=examples)
settings.load_profile("untimed")

REFERENCE = Path(__file__).parent / "reference"


@pytest.fixture(autouse=True, scope="session")
def _one_thread():
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def media() -> ModuleType:
    """The writers of small real media files."""
    spec = spec_from_file_location("media_files", Path(__file__).with_name("media_files.py"))
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def figures():
    """Give a reference file by name."""
    return lambda name: load_file(REFERENCE / f"{name}.safetensors")


@pytest.fixture(scope="session")
def reference_config():
    return json.loads((REFERENCE / "config.json").read_text())


@pytest.fixture(scope="session")
def reference_batches(figures):
    inputs = figures("inputs")
    return [{"audio": inputs[f"audio{i}"], "video": inputs[f"video{i}"]} for i in range(8)]


@pytest.fixture
def reference_model(reference_config):
    return dasp.load_model(
        "cav_mae",
        weights=REFERENCE / "model.safetensors",
        num_heads=reference_config["num_heads"],
    )


@pytest.fixture
def toy():
    return Toy(seed=1)


@pytest.fixture
def toy3():
    return Toy(modalities=("audio", "video", "depth"), seed=1)


def stream(modalities=("audio", "video"), size=16, strength=4.0):
    """One batch of each: clean, then each modality shifted."""
    world = SyntheticWorld(modalities)
    return [b.inputs for b in world.stream([CLEAN, *modalities], 1, size, strength)]


@pytest.fixture(scope="session")
def same_state():
    """Compare two snapshots bit for bit."""

    def same(first, second):
        return first.tensors.keys() == second.tensors.keys() and all(
            torch.equal(value.nan_to_num(), second.tensors[key].nan_to_num())
            for key, value in first.tensors.items()
        )

    return same


@pytest.fixture
def batches():
    return stream()


@pytest.fixture
def batches3():
    return stream(("audio", "video", "depth"))
