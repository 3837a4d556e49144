"""Photograph the live page: docs/pictures/page.png, and page.webp, in which it tells its story.

    python tools/picture_page.py        # needs chromium and the extra [browser]

The page is that of `dasp demo`, batch by batch. The still is taken before the last scene, when the
charts show one sensor damaged after the other, and both at once.
"""

import argparse
import shutil
import time
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import torch
from PIL import Image
from playwright.sync_api import Page as Tab
from playwright.sync_api import sync_playwright

from dasp.page.demo import Demo
from dasp.page.server import Page
from dasp.page.streams import SHAPES_STORY

OUT = Path(__file__).parents[1] / "docs" / "pictures"
SIZE = {"width": 1280, "height": 900}
PATIENCE = 900  # seconds
LARGEST = 1_500_000  # bytes
BATCHES = sum(scene.batches for scene in SHAPES_STORY)
EVERY = 2  # batches between two frames
WIDTH = 960  # pixels of the moving picture: as wide as a README is shown
FRAME, READ = 350, 1800  # milliseconds of a frame, and of one with something new to read


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--out", type=Path, default=OUT, help="directory for both pictures")
    given = options.parse_args()
    torch.set_num_threads(1)
    given.out.mkdir(parents=True, exist_ok=True)
    shots = dict(photographs())
    save_still(shots[BATCHES - SHAPES_STORY[-1].batches - EVERY], given.out / "page.png")
    save_moving(shots, given.out / "page.webp")


def photographs() -> Iterator[tuple[int, Image.Image]]:
    """Yield the page after every few batches of its story, by the number of batches."""
    with Page(Demo(), port=0, playing=False) as page, sync_playwright() as running:
        browser = running.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        tab = browser.new_page(viewport=SIZE, color_scheme="light", reduced_motion="reduce")
        tab.goto(page.url)
        until(tab, "document.body.dataset.line === 'live'")
        for batches in range(1, BATCHES + 1):
            tab.click("#step")
            until(tab, f"Number(document.body.dataset.batches) >= {batches}")
            if batches % EVERY == 0:
                tab.mouse.move(0, 0)  # the samples hold still under the pointer
                tab.wait_for_timeout(100)
                yield batches, Image.open(BytesIO(tab.screenshot())).convert("RGB")
        browser.close()


def until(tab: Tab, script: str) -> None:
    end = time.monotonic() + PATIENCE
    while not tab.evaluate(script):
        if time.monotonic() > end:
            raise TimeoutError(script)
        tab.wait_for_timeout(50)


def save_still(shot: Image.Image, path: Path) -> None:
    """Write a picture with 256 colours, which are enough for a page and a third of the size."""
    shot.quantize(256).save(path, optimize=True)
    check_size(path)


def save_moving(shots: dict[int, Image.Image], path: Path) -> None:
    """Write the story; each scene stays longer when it was diagnosed, and before it ends."""
    held, told = {BATCHES}, 0
    for scene in SHAPES_STORY:
        held |= {told + 2 * EVERY, told + scene.batches - EVERY}
        told += scene.batches
    height = round(WIDTH * SIZE["height"] / SIZE["width"])
    frames = [shot.resize((WIDTH, height), Image.Resampling.LANCZOS) for shot in shots.values()]
    first, *others = frames
    times = [READ if batches in held else FRAME for batches in shots]
    first.save(
        path, save_all=True, append_images=others, duration=times, loop=0, quality=60, method=4
    )
    check_size(path)


def check_size(path: Path) -> None:
    size = path.stat().st_size
    if size > LARGEST:
        raise ValueError(f"{path} has {size} bytes, more than {LARGEST}.")
    print(f"{path}: {size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
