"""What a DASP step costs next to a plain forward, on CAV-MAE ViT-B: ratios in one run.

    python benchmarks/step.py               # batch 16 and 64: 40 minutes on two cores
    python benchmarks/step.py --batch 16 --rounds 5
    python benchmarks/step.py --profile video --batch 16     # what the time is spent on

The cost depends on the diagnosis, so each case is forced; weights are random, time does not depend
on them. "stream" is the mean over the paper's interleaved order, each case as often as released
DASP met it in results/paper. "arithmetic" is the ratio of multiplications alone, which no
implementation in the same precision can undercut. Peak memory is that of a process of its own.
`--rounds` is for the largest batch; smaller ones get more.
"""

import dataclasses
import resource
import subprocess
import sys
from collections import Counter
from functools import partial

import torch
from measuring import HERE, Seconds, against, finish, parse, spread, take_turns, vit_inputs
from rich.progress import track
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode

import dasp
from dasp.bench.results import read_folder
from dasp.core.types import Inputs
from dasp.methods import Dasp

CASES = ("source", "audio", "video", "nothing")
KINDS = {
    "matrix products": ("aten::addmm", "aten::mm", "aten::bmm"),
    "attention": ("aten::_scaled_dot_product",),
    "convolution": ("aten::mkldnn_convolution", "aten::convolution"),
    "gelu": ("aten::gelu",),
    "norms": ("aten::native_layer_norm",),
    "copies and joins": ("aten::copy_", "aten::cat", "aten::clone", "aten::fill_"),
    "sums and scaling": ("aten::add", "aten::mul", "aten::div", "aten::sum"),
}


class Told(Dasp):
    """DASP that does all its work and then is told what the diagnosis was."""

    flagged: frozenset[str] = frozenset()

    def _diagnose(self, batch, remember):
        source, diagnosis = super()._diagnose(batch, remember)
        return source, dataclasses.replace(diagnosis, biased=self.flagged)


def build(case: str, model: torch.nn.Module) -> dasp.Adaptation:
    tta = dasp.adapt(model, "source" if case == "source" else Told)
    tta.method.flagged = frozenset() if case == "nothing" else frozenset({case})
    tta(vit_inputs(2))  # a small batch warms up as well as a large one
    return tta


def make_model() -> torch.nn.Module:
    torch.manual_seed(0)
    return dasp.models.CavMae(num_classes=309)


def measure_memory(case: str, batch: int) -> float:
    """Return the peak memory (MiB) of a process that makes two calls, the first a small one."""
    words = [sys.executable, __file__, "--memory-of", case, "--batch", str(batch)]
    return float(subprocess.run(words, capture_output=True, text=True, check=True).stdout)


def arithmetic(tta: dasp.Adaptation, inputs: Inputs | None = None) -> int:
    """Count the multiplications and additions of a step as it runs, by default of one sample."""
    aten = torch.ops.aten

    def forward(query, *_, **__) -> int:
        batch, heads, count, width = query
        return 4 * batch * heads * count * count * width

    def backward(_, query, *__, **___) -> int:
        return forward(query) * 5 // 2  # weights again, then four products

    attention = {
        aten._scaled_dot_product_flash_attention_for_cpu: forward,
        aten._scaled_dot_product_flash_attention_for_cpu_backward: backward,
    }
    with FlopCounterMode(display=False, custom_mapping=attention) as counter:
        tta(inputs or vit_inputs(1))
    return counter.get_total_flops()


def met_in_the_paper() -> dict[str, float]:
    """Return how often each case comes in the interleaved order, of all batches."""
    folder = read_folder(HERE.parent / "results" / "paper")
    keys = {key for plan in folder.plans for label, key in plan.rows if label == "dasp"}
    met: Counter[str] = Counter()
    for key in keys & folder.results.keys():
        run, counts = folder.results[key].run, folder.results[key].counts
        if (run.protocol, run.severity, run.batch_size) == ("interleaved", 5, 64) and counts:
            met.update("".join(names) or "nothing" for names in counts.batches.biased)
    return {case: met[case] / met.total() for case in CASES if case != "source"}


def figures_of(
    times: dict[str, list[Seconds]], memory: dict[str, float], counted: dict[str, int], met: dict
) -> dict[str, dict]:
    base = times["source"]
    found = {case: against(times[case], base) for case in CASES}
    found["stream"] = spread(
        [
            sum(share * times[case][n].clock / base[n].clock for case, share in met.items())
            for n in range(len(base))
        ]
    )

    def mean(name: str) -> float:
        return round(sum(share * found[case][name] for case, share in met.items()), 4)

    found["stream"]["processor_ratio"] = mean("processor_ratio")
    for case, peak in memory.items():
        found[case] |= {"peak_mib": round(peak), "memory": round(peak / memory["source"], 4)}
        found[case]["arithmetic"] = round(counted[case] / counted["source"], 4)
    found["stream"]["memory"] = max(found[case]["memory"] for case in met)
    found["stream"]["arithmetic"] = mean("arithmetic")
    return found


def shares(call) -> dict[str, float]:
    """Return the share of processor time of each kind of operation in a call."""
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        call()
    times: Counter[str] = Counter()
    for event in profiler.key_averages():
        kinds = (kind for kind, starts in KINDS.items() if event.key.startswith(starts))
        kind = next(kinds, "all else")
        backward = ", backward" if kind in KINDS and "backward" in event.key else ""
        times[kind + backward] += event.self_cpu_time_total
    return {kind: round(own / times.total(), 4) for kind, own in times.most_common()}


def main() -> None:
    options = parse(__doc__, batch=[16, 64], rounds=3, profile=None, memory_of=None)
    if options.memory_of:
        build(options.memory_of, make_model())(vit_inputs(options.batch[0]))
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
        return
    if options.profile:
        tta, inputs = build(options.profile, make_model()), vit_inputs(options.batch[0])
        finish(options, f"A profile, {options.profile}", shares(lambda: tta(inputs)))
        return
    # Memory first: a child's peak counts what its parent held when it was started.
    wanted = [(batch, case) for batch in options.batch for case in CASES]
    memory = {(b, c): measure_memory(c, b) for b, c in track(wanted, "memory", transient=True)}
    model, met, figures = make_model(), met_in_the_paper(), {}
    counted = {case: arithmetic(build(case, model)) for case in CASES}
    for batch in options.batch:
        inputs, handles = vit_inputs(batch), {case: build(case, model) for case in CASES}
        calls = {case: partial(tta, inputs) for case, tta in handles.items()}
        rounds = options.rounds * max(options.batch) // batch  # as many samples at each size
        times = take_turns(calls, rounds, warm_up=0)
        peaks = {case: memory[batch, case] for case in CASES}
        figures[f"batch {batch}"] = figures_of(times, peaks, counted, met)
    title = f"A DASP step next to a plain forward, CAV-MAE ViT-B, {torch.get_num_threads()} threads"
    finish(options, title, figures | {"met": met})


if __name__ == "__main__":
    main()
