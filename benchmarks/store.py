"""How near the feature store comes to the disk: writing and reading arrays of ViT-B's size.

    python benchmarks/store.py               # 300 MB at a time, four minutes

The base is a plain file of the same bytes, written in the same pieces (and synced) or read from
one end to the other into batches of 64. Beside the store: `numpy.save` and `numpy.load` of the
whole array, and a memory map, filled and synced, or read by rows. The store is read as runs do, 64
rows at a time in a shuffled order; "row by row" is the plain file in that order. *Cold*: the system
has been told to forget the files (posix_fadvise); what the disk itself remembers stays. `--folder`
names a directory on the disk to be measured.
"""

import os
import statistics
import tempfile
from pathlib import Path

import numpy as np
from measuring import against, finish, parse, take_turns
from numpy.lib.format import open_memmap

from dasp.bench.store import Store, gather

TOKENS = (196, 768)  # of a frame in ViT-B; a sound has 512
BATCH = 64


class Arrays:
    """The same rows as the store keeps them, as float16, and as a plain file and numpy's."""

    def __init__(self, folder: Path, rows: int) -> None:
        rng = np.random.default_rng(0)
        self.folder, self.rows = folder, rows
        self.piece = rng.standard_normal((BATCH, *TOKENS), np.float32)
        self.half = self.piece.astype(np.float16)
        self.whole = np.tile(self.piece, (rows // BATCH, 1, 1))
        self.order = rng.permutation(rows).reshape(-1, BATCH)

    def forget_files(self) -> None:
        for path in self.folder.iterdir():
            path.unlink()

    def forget_cache(self) -> None:
        for path in self.folder.glob("*.npy"):
            forget(path)

    def pieces(self, piece: np.ndarray):
        return (piece for _ in range(self.rows // BATCH))

    def write_plain(self) -> None:
        with (self.folder / "plain.npy").open("wb", buffering=0) as file:
            for piece in self.pieces(self.piece):
                file.write(piece.data)
            os.fsync(file.fileno())

    def write_numpy(self) -> None:
        with (self.folder / "numpy.npy").open("wb") as file:
            np.save(file, self.whole)
            file.flush()
            os.fsync(file.fileno())

    def write_map(self) -> None:
        path, shape = self.folder / "map.npy", self.whole.shape
        array = open_memmap(path, mode="w+", dtype=np.float32, shape=shape)
        for number, piece in enumerate(self.pieces(self.piece)):
            array[number * BATCH : (number + 1) * BATCH] = piece
        array.flush()

    def store(self, name: str, piece: np.ndarray) -> np.ndarray:
        key = {"kind": "tokens", "name": name}
        return Store(self.folder).get(key, self.rows, lambda: self.pieces(piece))

    def read_plain(self, rows: bool) -> None:
        size = self.piece[0].nbytes
        with (self.folder / "plain.npy").open("rb", buffering=0) as file:
            for numbers in self.order:
                batch = np.empty_like(self.piece)
                if not rows:
                    file.readinto(batch.data)
                    continue
                for number, place in zip(numbers, batch, strict=True):
                    file.seek(number * size)
                    file.readinto(place.data)

    def read_numpy(self, mapped: bool) -> None:
        whole = np.load(self.folder / "numpy.npy", mmap_mode="r" if mapped else None)
        for rows in self.order:
            np.empty_like(self.piece)[:] = whole[rows]

    def read_store(self, name: str) -> None:
        array = self.store(name, self.piece)
        for rows in self.order:
            gather([array], np.zeros_like(rows), rows)


def forget(path: Path) -> None:
    """Let the system drop what it keeps of a file in memory."""
    handle = os.open(path, os.O_RDONLY)
    os.fsync(handle)
    os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(handle)


def measure(arrays: Arrays, rounds: int) -> dict[str, dict]:
    writing = {
        "plain file": arrays.write_plain,
        "store": lambda: arrays.store("full", arrays.piece),
        "store, float16": lambda: arrays.store("half", arrays.half),
        "numpy.save": arrays.write_numpy,
        "memory map": arrays.write_map,
    }
    reading = {
        "plain file": lambda: arrays.read_plain(rows=False),
        "plain file, row by row": lambda: arrays.read_plain(rows=True),
        "store": lambda: arrays.read_store("full"),
        "store, float16": lambda: arrays.read_store("half"),
        "numpy.load": lambda: arrays.read_numpy(mapped=False),
        "rows of a memory map": lambda: arrays.read_numpy(mapped=True),
    }
    found = {"write": take_turns(writing, rounds, before=arrays.forget_files)}
    for write in writing.values():
        write()
    (arrays.folder / "map.npy").unlink()
    found["read, warm"] = take_turns(reading, rounds)  # as a run does that has just filled it
    found["read, cold"] = take_turns(reading, rounds, before=arrays.forget_cache)
    return found


def main() -> None:
    options = parse(__doc__, rows=512, rounds=21, folder=None)
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        arrays = Arrays(Path(folder), options.rows)
        times = measure(arrays, options.rounds)
    options.folder = None  # it says nothing to others
    figures: dict[str, dict] = {}
    for what, ways in times.items():
        figures[what] = {way: against(own, ways["plain file"]) for way, own in ways.items()}
        for way, row in figures[what].items():
            seconds = statistics.median(s.clock for s in ways[way])
            row["mb_per_second"] = round(arrays.whole.nbytes / 1e6 / seconds)
    finish(options, "The feature store beside plain files", figures)


if __name__ == "__main__":
    main()
