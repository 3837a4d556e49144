"""How near the feature store comes to the disk: writing and reading arrays of ViT-B's size.

    .venv/bin/python benchmarks/store.py               # 300 MB at a time, four minutes

The base is a plain file of the same bytes, written in the same pieces (and synced) or read from
one end to the other into batches of 64. Beside the store: `numpy.save` and `numpy.load` of the
whole array, and the ways taken before (a memory map filled, then synced; rows picked out of one).
The store is read as runs do, 64 rows at a time in a shuffled order; "row by row" is the plain file
in that order. *Cold*: the system has been told to forget the files (posix_fadvise); whatever the
disk itself remembers stays. All in turn.
"""

import argparse
import os
import statistics
import tempfile
from pathlib import Path

import numpy as np
from measuring import against, options_of, take_turns, write_figures
from numpy.lib.format import open_memmap
from rich.console import Console
from rich.table import Table

from dasp.bench.gather import gather
from dasp.bench.store import Store

TOKENS = (196, 768)  # of a frame in ViT-B; a sound has 512
BATCH = 64
KEY = {"kind": "tokens"}


class Arrays:
    """The same rows as the store keeps them, as float16, and as a plain file and numpy's."""

    def __init__(self, folder: Path, rows: int) -> None:
        rng = np.random.default_rng(0)
        self.folder, self.rows = folder, rows
        self.piece = rng.standard_normal((BATCH, *TOKENS), np.float32)
        self.half = self.piece.astype(np.float16)
        self.whole = np.tile(self.piece, (rows // BATCH, 1, 1))
        self.order = rng.permutation(rows).reshape(-1, BATCH)

    def path(self, name: str) -> Path:
        return self.folder / name

    def forget_files(self) -> None:
        for path in self.folder.iterdir():
            path.unlink()

    def forget_cache(self) -> None:
        """Let the system drop what it keeps of the files in memory."""
        for path in self.folder.glob("*.npy"):
            handle = os.open(path, os.O_RDONLY)
            os.fsync(handle)
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(handle)

    def pieces(self, piece: np.ndarray):
        return (piece for _ in range(self.rows // BATCH))

    def write_plain(self) -> None:
        with self.path("plain.npy").open("wb", buffering=0) as file:
            for piece in self.pieces(self.piece):
                file.write(piece.data)
            os.fsync(file.fileno())

    def write_numpy(self) -> None:
        with self.path("numpy.npy").open("wb") as file:
            np.save(file, self.whole)
            file.flush()
            os.fsync(file.fileno())

    def write_map(self) -> None:
        shape = self.whole.shape
        array = open_memmap(self.path("map.npy"), mode="w+", dtype=np.float32, shape=shape)
        for number, piece in enumerate(self.pieces(self.piece)):
            array[number * BATCH : (number + 1) * BATCH] = piece
        array.flush()

    def store(self, name: str, piece: np.ndarray) -> np.ndarray:
        key = KEY | {"name": name}
        return Store(self.folder).get(key, self.rows, lambda _: self.pieces(piece))

    def read_plain(self) -> None:
        with self.path("plain.npy").open("rb", buffering=0) as file:
            for _ in self.order:
                file.readinto(np.empty_like(self.piece).data)

    def read_plain_rows(self) -> None:
        size = self.piece[0].nbytes
        with self.path("plain.npy").open("rb", buffering=0) as file:
            for rows in self.order:
                batch = np.empty_like(self.piece)
                for row, place in zip(rows, batch, strict=True):
                    file.seek(row * size)
                    file.readinto(place.data)

    def read_numpy(self) -> None:
        whole = np.load(self.path("numpy.npy"))
        for rows in self.order:
            whole[rows]

    def read_map(self) -> None:
        array = np.load(self.path("numpy.npy"), mmap_mode="r")
        for rows in self.order:
            np.empty_like(self.piece)[:] = array[rows]

    def read_store(self, name: str) -> None:
        array = self.store(name, self.piece)
        for rows in self.order:
            gather([array], np.zeros_like(rows), rows)


def measure(arrays: Arrays, rounds: int) -> dict[str, dict]:
    writing = {
        "plain file": arrays.write_plain,
        "store": lambda: arrays.store("full", arrays.piece),
        "store, float16": lambda: arrays.store("half", arrays.half),
        "numpy.save": arrays.write_numpy,
        "memory map": arrays.write_map,
    }
    reading = {
        "plain file": arrays.read_plain,
        "plain file, row by row": arrays.read_plain_rows,
        "store": lambda: arrays.read_store("full"),
        "store, float16": lambda: arrays.read_store("half"),
        "numpy.load": arrays.read_numpy,
        "rows of a memory map": arrays.read_map,
    }
    found = {"write": take_turns(writing, rounds, before=arrays.forget_files)}
    for write in writing.values():
        write()
    arrays.path("map.npy").unlink()
    found["read, warm"] = take_turns(reading, rounds)  # as a run does that has just filled it
    found["read, cold"] = take_turns(reading, rounds, before=arrays.forget_cache)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=512, help="samples, a multiple of 64")
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--folder", help="on the disk to be measured; by default a temporary one")
    parser.add_argument("--json", help="also write the figures to this file")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        arrays = Arrays(Path(folder), options.rows)
        times = measure(arrays, options.rounds)
    megabytes = arrays.whole.nbytes / 1e6
    table = Table(title=f"{megabytes:.0f} MB: times as long as a plain file of float32")
    for column in ("", "way", "ratio", "low to high", "MB/s of float32"):
        table.add_column(column, justify="left" if column in ("", "way") else "right")
    figures: dict[str, dict] = {}
    for what, ways in times.items():
        figures[what] = {way: against(own, ways["plain file"]) for way, own in ways.items()}
        for way, row in figures[what].items():
            row["mb_per_second"] = round(megabytes / statistics.median(s.clock for s in ways[way]))
            spread = f"{row['low']:.2f} to {row['high']:.2f}"
            table.add_row(what, way, f"{row['ratio']:.2f}", spread, str(row["mb_per_second"]))
    Console().print(table)
    settings = {k: v for k, v in options_of(options).items() if k != "folder"}
    write_figures(options.json, "The feature store beside plain files", settings, figures)


if __name__ == "__main__":
    main()
