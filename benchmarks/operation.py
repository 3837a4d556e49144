"""What running in service costs: the size of a state, a log, a checkpoint, and the live page.

    python benchmarks/operation.py           # a minute on two cores
    python benchmarks/operation.py --page 84 # the live page, 84 batches of --batch samples

Each way is timed in turn on the same batch; figures are medians of ratios to the batch without log
and checkpoint of the same round. `floor` is that same batch once more: its difference from 1 is the
noise. The models are as small as they come, so that every part is as large as it gets. `--page`
follows the paper's interleaved order in one thread: draw, corrupt, encode, adapt in three lanes,
draw pictures, and take what a browser would be sent.
"""

import json
import os
import statistics
import tempfile
from pathlib import Path

import torch
from measuring import against, finish, parse, random_inputs, take_turns, timed

import dasp
from dasp.bench.references import find_model
from dasp.models import CavMae, Toy


def size_of_state(model: torch.nn.Module) -> dict[str, float]:
    """Return what a state takes beside the model it belongs to, in megabytes."""
    tta = dasp.adapt(model, "dasp")
    whole = sum(parameter.nbytes for parameter in model.parameters())
    # weights and Adam's two moments, which come with the first update
    state = 3 * sum(value.nbytes for value in tta.state()["tensors"].values())
    found = {"model_mb": round(whole / 1e6, 2), "state_mb": round(state / 1e6, 2)}
    return found | {"share": round(state / whole, 4)}


def costs(model: torch.nn.Module, folder: Path, batch: int, rounds: int) -> dict[str, dict]:
    """Return how many times as long as a plain batch each way takes, and the milliseconds added."""
    ways = {
        "plain": {},
        "floor": {},
        "log": {"log": folder / "log.jsonl"},
        "checkpoint": {"checkpoint": folder / "state.safetensors", "checkpoint_every": 1},
    }
    toy = isinstance(model, Toy)
    shapes = dict.fromkeys(model.modalities, (4, model.features)) if toy else model.input_shapes
    inputs = random_inputs(shapes, batch)
    handles = {way: dasp.adapt(model, "dasp", delta=0.0, **own) for way, own in ways.items()}
    calls = {way: lambda tta=tta: tta(inputs) for way, tta in handles.items()}
    times, found = take_turns(calls, rounds, warm_up=4), {}
    for way in ("floor", "log", "checkpoint"):
        pairs = list(zip(times[way], times["plain"], strict=True))
        extra = statistics.median(a.processor - b.processor for a, b in pairs)
        found[way] = against(times[way], times["plain"]) | {"extra_ms": round(1000 * extra, 3)}
    return found


def page(batches: int, size: int) -> dict[str, object]:
    """Return seconds per batch, kB per message, and the memory at six points on the way."""
    from dasp.page.demo import Demo
    from dasp.page.runner import History
    from dasp.page.streams import BuiltInStream

    session = Demo(stream=BuiltInStream(batch=size))
    history, seen, sizes, spent, memory = History(), -1, [], [], []
    for number in range(batches):
        spent.append(timed(lambda: history.publish(session.next())))
        news, seen = history.since(seen)
        sizes.append(len(json.dumps(news)))
        if (number + 1) % max(1, batches // 6) == 0:
            pages = int(Path("/proc/self/statm").read_text().split()[1])
            memory.append(round(pages * os.sysconf("SC_PAGE_SIZE") / 1e6))
    return {
        "processor_seconds_a_batch": round(statistics.median(s.processor for s in spent), 3),
        "clock_seconds_a_batch": round(statistics.median(s.clock for s in spent), 3),
        "kilobytes_a_message": round(statistics.median(sizes) / 1000),
        "megabytes_on_the_way": memory,
    }


def main() -> None:
    options = parse(__doc__, rounds=100, batch=64, page=0)
    torch.set_num_threads(1)
    if options.page:
        finish(options, "The live page", page(options.page, options.batch))
        return
    built_in = find_model("sounding_shapes_0")
    models = {"sounding_shapes_0": built_in, "CAV-MAE ViT-B": CavMae(num_classes=309)}
    figures = {"size of a state": {name: size_of_state(model) for name, model in models.items()}}
    for name, model in {"toy": Toy(), "sounding_shapes_0": built_in}.items():
        with tempfile.TemporaryDirectory() as folder:
            figures[name] = costs(model, Path(folder), options.batch, options.rounds)
    finish(options, "A log and a checkpoint in service", figures)


if __name__ == "__main__":
    main()
