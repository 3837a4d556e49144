"""Photograph the live page for the README: docs/pictures/page.png.

    python tools/picture_page.py        # needs chromium and the extra [browser]

The page is that of `dasp demo`. It plays its story until the sound is noisy, the diagnosis has
named the audio and accuracy has had time to recover; then one picture is taken.
"""

import argparse
import shutil
import time
from io import BytesIO
from pathlib import Path

import torch
from PIL import Image
from playwright.sync_api import Page as Tab
from playwright.sync_api import sync_playwright

from dasp.page.demo import Demo
from dasp.page.server import Page

OUT = Path(__file__).parents[1] / "docs" / "pictures" / "page.png"
SIZE = {"width": 1280, "height": 900}
PATIENCE = 600  # seconds
LARGEST = 1_500_000  # bytes


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--out", type=Path, default=OUT)
    options.add_argument("--batches", type=int, default=44, help="batches before the picture")
    given = options.parse_args()
    torch.set_num_threads(1)
    with Page(Demo(), port=0, playing=False) as page, sync_playwright() as running:
        browser = running.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        tab = browser.new_page(viewport=SIZE, color_scheme="light")
        tab.goto(page.url)
        until(tab, "document.body.dataset.line === 'live'")
        tab.select_option("#speed", "8")
        tab.click("#play")
        until(tab, f"Number(document.body.dataset.batches) >= {given.batches}")
        tab.click("#play")
        until(tab, "document.querySelector('#play .word').textContent === 'Play'")
        tab.evaluate("scrollTo(0, 0)")
        save(tab.screenshot(), given.out)
        browser.close()


def until(tab: Tab, script: str) -> None:
    end = time.monotonic() + PATIENCE
    while not tab.evaluate(script):
        if time.monotonic() > end:
            raise TimeoutError(script)
        tab.wait_for_timeout(100)


def save(png: bytes, path: Path) -> None:
    """Write the picture with 256 colours, which are enough for a page and a third of the size."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.open(BytesIO(png)).convert("RGB").quantize(256).save(path, optimize=True)
    size = path.stat().st_size
    if size > LARGEST:
        raise ValueError(f"{path} has {size} bytes, more than {LARGEST}.")
    print(f"{path}: {size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
