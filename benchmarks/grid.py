"""What the feature store saves: all token-level methods over the paper's five protocols.

    python benchmarks/grid.py                # 128 samples per domain: 15 minutes
    python benchmarks/grid.py --vit 0        # without the costs of ViT-B

Every run is made three ways in turn, in one process of one thread: everything from the store (its
filling counted), tokens encoded anew from stored inputs, and everything (drawing, corrupting,
encoding) anew, as the released code does. The results must be the same to the bit.

The encoders of the built-in model are tiny beside its fusion. So ViT-B's parts (each encoder, each
method on tokens, writing and reading a batch of tokens) are timed in turn as well, and what they
give for the same grid is reckoned: without the store 126 encodings per method, with it 16 of video
and 7 of audio for all. Corrupting, which the store saves too, is left out there.
"""

import json
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from functools import partial

import numpy as np
import torch
from measuring import Seconds, finish, parse, spread, timed, vit_inputs
from rich.progress import track

import dasp
from dasp.bench.cells import needed_features, run_job
from dasp.bench.features import Features, own_domain
from dasp.bench.plan import MAIN_PROTOCOLS, Job, MethodRow, Plan, load_plan
from dasp.bench.references import find_model
from dasp.bench.store import Store, gather
from dasp.methods import METHODS

TOKEN_LEVEL = tuple(
    name for name in METHODS if not METHODS[name].tunes_encoder and name != "triage"
)
STORE, ENCODE, ANEW = "store", "encode in every run", "corrupt and encode in every run"
BATCH = 16  # of ViT-B


class EncodesEachTime(Features):
    """Inputs from the store, tokens made whenever they are asked for."""

    def __init__(self, *given) -> None:
        super().__init__(*given)
        self.ahead = 0

    def get(self, spec):
        if not spec.encoded:
            return super().get(spec)
        return np.concatenate(list(self._make(spec)))


def grid_plan(samples: int, model: str) -> Plan:
    plan = load_plan("quick")
    rows = {name: MethodRow(name) for name in TOKEN_LEVEL}
    data = replace(plan.data, samples=samples)
    return replace(plan, methods=rows, protocols=MAIN_PROTOCOLS, models=(model,), data=data)


def measure_grid(plan: Plan, folder: str) -> dict:
    """Make every run all three ways, in rotating order."""
    dataset, model = plan.data.open(), find_model(plan.models[0])
    ways = {
        STORE: Features(dataset, model, Store(folder)),
        ENCODE: EncodesEachTime(dataset, model, Store(folder)),
        ANEW: Features(dataset, model, None),
    }
    times: dict[str, list[Seconds]] = {way: [] for way in ways}
    same, turns, jobs = True, list(ways), [job for _, job in plan.jobs()]
    specs = {spec for job in jobs for spec in needed_features(job, model)}
    raw = {replace(spec, encoded=False) for spec in specs}
    drawing = timed(lambda: [ways[STORE].get(spec) for spec in raw])
    encoding = timed(lambda: [ways[STORE].get(spec) for spec in specs])
    for job in {job.run.method: job for job in jobs}.values():  # warms up, above all torch
        run(job, ways[STORE], set())
    for job in track(jobs, description="runs", transient=True):
        results: set[str] = set()
        for way in turns:
            times[way].append(timed(partial(run, job, ways[way], results)))
        same = same and len(results) == 1
        turns = turns[1:] + turns[:1]
    return {"clock": whole(times, drawing.clock, encoding.clock), "equal": same}


def run(job: Job, features: Features, results: set[str]) -> None:
    results.add(json.dumps(asdict(run_job(job, features).counts)))


def whole(times: dict, drawing: float, encoding: float) -> dict:
    """Add up the seconds of the whole grid, with those of filling the store."""
    seconds = {way: sum(run.clock for run in own) for way, own in times.items()}
    seconds[STORE] += drawing + encoding
    seconds[ENCODE] += drawing  # tokens encoded in every run need inputs, drawn once
    return {
        "seconds": {way: round(value, 2) for way, value in seconds.items()},
        "filling": round(drawing + encoding, 2),
        "times_as_long": {way: round(value / seconds[STORE], 3) for way, value in seconds.items()},
    }


def vit_parts(methods: Sequence[str], rounds: int) -> dict[str, list[Seconds]]:
    """Time each encoder, writing and reading a batch of tokens, and each method on tokens."""
    torch.manual_seed(0)
    model, inputs = dasp.models.CavMae(num_classes=309).eval(), vit_inputs(BATCH)
    with torch.no_grad():
        tokens = model.encode(inputs)
    times: dict[str, list[Seconds]] = {}
    for round_ in track(range(rounds + 1), description="ViT-B's parts", transient=True):
        for name, call in _calls(methods, model, inputs, tokens):
            seconds = timed(call)
            if round_:  # the first round warms up
                times.setdefault(name, []).append(seconds)
    return times


def _calls(methods, model, inputs, tokens) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield what is timed; getting it ready is not."""
    encode = torch.no_grad()(model.encode)
    for name, value in inputs.items():
        yield f"encode {name}", partial(encode, {name: value})
    rows = np.arange(BATCH)
    with tempfile.TemporaryDirectory() as folder:
        store = Store(folder)

        def arrays() -> list:
            return [
                store.get({"kind": "tokens", "name": n}, BATCH, lambda t=t: iter([t.numpy()]))
                for n, t in tokens.items()
            ]

        yield "write tokens", arrays
        yield "read tokens", lambda: [gather([a], np.zeros_like(rows), rows) for a in arrays()]
    for name in methods:
        tta = dasp.adapt(model, name)
        tta.on_tokens(tokens)  # the first call takes the snapshot
        yield name, partial(tta.on_tokens, tokens)
        tta.reset()


def reckoned(times: dict[str, list[Seconds]], plan: Plan) -> dict[str, float]:
    """Reckon what the grid takes with ViT-B with and without the store: one ratio per round."""
    jobs = [job for _, job in plan.jobs()]
    passes = sum(1 for job in jobs if job.run.method == jobs[0].run.method for _ in job.visits())
    model = find_model(plan.models[0])
    specs = {spec for job in jobs for spec in needed_features(job, model)}
    once = Counter(name for name, _ in {(spec.modality, own_domain(spec)) for spec in specs})
    ratios = []
    for round_ in range(len(times["read tokens"])):
        cost = {name: own[round_].clock for name, own in times.items()}
        encode = cost["encode audio"] + cost["encode video"]
        adapt = sum(cost[name] for name in TOKEN_LEVEL)
        made = sum(count * cost[f"encode {name}"] for name, count in once.items())
        stored = made + max(once.values()) * cost["write tokens"]
        stored += passes * (adapt + len(TOKEN_LEVEL) * cost["read tokens"])
        ratios.append(passes * (adapt + len(TOKEN_LEVEL) * encode) / stored)
    return spread(ratios)


def main() -> None:
    options = parse(__doc__, samples=128, model="sounding_shapes_0", vit=3)
    torch.set_num_threads(1)
    plan = grid_plan(options.samples, options.model)
    with tempfile.TemporaryDirectory() as folder:
        figures = measure_grid(plan, folder)
    if options.vit:
        figures["vit"] = {"store": reckoned(vit_parts(TOKEN_LEVEL, options.vit), plan)}
    title = "All token-level methods on the paper's five protocols, with and without the store"
    finish(options, title, figures)


if __name__ == "__main__":
    main()
