"""How quickly the live page goes from batch to batch, and whether its memory grows.

    .venv/bin/python benchmarks/live_page.py                          # 84 batches of 64
    .venv/bin/python benchmarks/live_page.py --batches 2400 --size 8  # ten minutes at four a second

One thread, along the paper's interleaved order: draw, corrupt, encode, adapt in three lanes,
draw pictures, and take what a browser would be sent. `processor` is the time of the processor that
a batch takes, which a busy machine changes less than the clock.
"""

import argparse
import json
import os
import statistics
from pathlib import Path

import torch
from measuring import options_of, timed, write_figures

from dasp.page.board import Board, Mark
from dasp.page.built_in import BATCH, BuiltInStream
from dasp.page.demo import demo_session

PIECES = 6  # of the run, to see whether it grows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batches", type=int, default=84)
    parser.add_argument("--size", type=int, default=BATCH, help="samples a batch")
    parser.add_argument("--json", help="where to write the figures")
    options = parser.parse_args()
    torch.set_num_threads(1)
    session = demo_session(stream=BuiltInStream(batch=options.size))
    board, mark, sizes, spent, memory = Board(), Mark(), [], [], []
    for number in range(options.batches):
        spent.append(timed(lambda: board.publish(session.next())))
        news, mark = board.since(mark)
        sizes.append(len(json.dumps(news)))
        if (number + 1) % max(1, options.batches // PIECES) == 0:
            memory.append(round(resident()))
            print(f"{number + 1} batches: {memory[-1]} MB")
    figures = {
        "processor_seconds_a_batch": round(statistics.median(s.processor for s in spent), 3),
        "clock_seconds_a_batch": round(statistics.median(s.clock for s in spent), 3),
        "kilobytes_a_message": round(statistics.median(sizes) / 1000),
        "megabytes_on_the_way": memory,
    }
    print(json.dumps(figures, indent=2))
    write_figures(options.json, "The live page", options_of(options), figures)


def resident() -> float:
    """Return the memory that this process has now, in MB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


if __name__ == "__main__":
    main()
