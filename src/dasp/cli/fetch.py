"""The command `dasp data fetch`."""

from pathlib import Path
from typing import Annotated, Literal

import tyro

from dasp.core.files import check_writable
from dasp.data.sources import fetch


def data_fetch(
    name: Annotated[Literal["grid", "dsa"], tyro.conf.arg(metavar="NAME")],
    folder: Annotated[Path | None, tyro.conf.arg(metavar="FOLDER")] = None,
    /,
    speakers: tuple[str, ...] = (),
) -> int:
    """Fetch a data set of recordings: print its source, licence, size and checksum, unpack it.

    What is fetched is compared with the size and checksum that its publisher gives, unpacked and
    counted. Without a network, or with archives that you have already: put them into the folder
    and run the command; without them it says what to download.

    Args:
        name: grid (spoken words) or dsa (body-worn sensors).
        folder: Directory to fill; by default data/NAME.
        speakers: Of grid: some of s1 to s34, by default s1.
    """
    target = folder or Path("data") / name
    check_writable(target)
    fetch(name, target, speakers)
    print(f"use it with --data {name} --root {target}")
    return 0
