"""What a DASP step costs next to a plain forward, on CAV-MAE ViT-B: ratios in one run.

    .venv/bin/python benchmarks/step.py               # batch 16 and 64: 40 minutes on two cores
    .venv/bin/python benchmarks/step.py --batch 16 --rounds 5
    .venv/bin/python benchmarks/step.py --profile video --batch 16     # what the time goes to

The cost depends on what the diagnosis says, so each case is forced; weights are random, time does
not depend on them. "stream" is the mean over the paper's interleaved order, each case as often as
released DASP met it in results/paper. "arithmetic" is the ratio of multiplications alone, which no
implementation in the same precision can undercut. Peak memory is that of a process of its own.
"""

import argparse
import dataclasses
import json
import resource
import subprocess
import sys
from collections import Counter
from pathlib import Path

import torch
from measuring import Seconds, against, options_of, spread, take_turns, write_figures
from profile_table import print_profile
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch.utils.flop_counter import FlopCounterMode

import dasp
from dasp.methods import Dasp

CASES = ("source", "audio", "video", "nothing")
PAPER = Path(__file__).parent.parent / "results" / "paper"
MIB = 1024


class Told(Dasp):
    """DASP that does all its work and then is told what the diagnosis was."""

    flagged: frozenset[str] = frozenset()

    def _diagnose(self, batch, remember):
        source, diagnosis = super()._diagnose(batch, remember)
        return source, dataclasses.replace(diagnosis, biased=self.flagged)


def build(case: str, model: torch.nn.Module) -> dasp.Adaptation:
    if case == "source":
        return dasp.adapt(model, "source")
    tta = dasp.adapt(model, Told)
    tta.method.flagged = frozenset() if case == "nothing" else frozenset({case})
    return tta


def make_model() -> torch.nn.Module:
    torch.manual_seed(0)
    return dasp.models.CavMae(num_classes=309)


def make_inputs(batch: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return {
        "audio": torch.randn(batch, 1024, 128, generator=generator),
        "video": torch.randn(batch, 3, 224, 224, generator=generator),
    }


def measure_time(model: torch.nn.Module, batch: int, rounds: int) -> dict[str, list[Seconds]]:
    inputs = make_inputs(batch)
    handles = {case: build(case, model) for case in CASES}
    for tta in handles.values():  # a small batch warms up as well as a large one
        tta(make_inputs(2))
    calls = {case: lambda tta=tta: tta(inputs) for case, tta in handles.items()}
    return take_turns(calls, rounds, warm_up=0)


def measure_memory(case: str, batch: int) -> float:
    """Peak resident memory (MiB) of a process that makes two calls, the first a small one."""
    command = [sys.executable, __file__, "--memory-of", case, "--batch", str(batch)]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def report_memory(case: str, batch: int) -> None:
    tta, inputs = build(case, make_model()), make_inputs(batch)
    tta(make_inputs(2))  # the optimiser's averages are there from the second call on
    tta(inputs)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / MIB)


def arithmetic(model: torch.nn.Module, case: str) -> int:
    """Multiplications and additions of a step of one sample, counted as it runs."""
    aten = torch.ops.aten
    attention = {
        aten._scaled_dot_product_flash_attention_for_cpu: attention_forward,
        aten._scaled_dot_product_flash_attention_for_cpu_backward: attention_backward,
    }
    with FlopCounterMode(display=False, custom_mapping=attention) as counter:
        build(case, model)(make_inputs(1))
    return counter.get_total_flops()


def attention_forward(query, *_, **__) -> int:
    batch, heads, count, width = query
    return 4 * batch * heads * count * count * width


def attention_backward(_, query, *__, **___) -> int:
    return attention_forward(query) * 5 // 2  # weights again, then four products


def met_in_the_paper() -> dict[str, float]:
    """How often each case comes in the interleaved order, of all batches."""
    met: Counter[str] = Counter()
    for path in sorted(PAPER.glob("interleaved-5-dasp-sounding_shapes_?-0-*.json")):
        content = json.loads(path.read_text())
        if content["cell"]["batch_size"] == 64:  # others are in a study of the batch size
            biased = content["result"]["batches"]["biased"]
            met.update("".join(names) or "nothing" for names in biased)
    return {case: met[case] / met.total() for case in CASES if case != "source"}


def figures_of(times: dict[str, list[Seconds]], memory: dict[str, float]) -> dict[str, dict]:
    base, met = times["source"], met_in_the_paper()
    found = {case: against(times[case], base) for case in CASES}
    rounds = [
        sum(share * times[case][n].clock / base[n].clock for case, share in met.items())
        for n in range(len(base))
    ]
    found["stream"] = spread(rounds)
    found["stream"]["processor_ratio"] = mean(met, found, "processor_ratio")
    for case, peak in memory.items():
        found[case] |= {"peak_mib": round(peak), "memory": round(peak / memory["source"], 4)}
    found["stream"]["memory"] = max(found[case]["memory"] for case in met)
    return found


def mean(met: dict[str, float], found: dict[str, dict], name: str) -> float:
    return round(sum(share * found[case][name] for case, share in met.items()), 4)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch", type=int, nargs="+", default=[16, 64])
    parser.add_argument(
        "--rounds", type=int, default=3, help="of the largest batch; of smaller ones more"
    )
    parser.add_argument("--threads", type=int, default=0, help="0: as torch chooses")
    parser.add_argument("--json", help="also write the figures to this file")
    parser.add_argument("--profile", choices=CASES, help="print what the time of this case is")
    parser.add_argument("--memory-of", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    if options.memory_of:
        report_memory(options.memory_of, options.batch[0])
        return
    # Memory first: a child's peak counts what its parent held when it was started.
    wanted = [] if options.profile else [(b, c) for b in options.batch for c in CASES]
    memory = {(b, c): measure_memory(c, b) for b, c in track(wanted, "memory", transient=True)}
    model = make_model()
    if options.profile:
        tta, inputs = build(options.profile, model), make_inputs(options.batch[0])
        tta(make_inputs(2))
        print_profile(lambda: tta(inputs), options.profile, options.batch[0], options)
        return
    counted = {case: arithmetic(model, case) for case in CASES}
    ratios = {case: round(count / counted["source"], 4) for case, count in counted.items()}
    figures = {}
    for batch in options.batch:
        peaks = {case: memory[batch, case] for case in CASES}
        rounds = options.rounds * max(options.batch) // batch  # as many samples at each size
        figures[f"batch {batch}"] = found = figures_of(measure_time(model, batch, rounds), peaks)
        for case, ratio in ratios.items():
            found[case]["arithmetic"] = ratio
        found["stream"]["arithmetic"] = mean(met_in_the_paper(), found, "arithmetic")
        show(batch, found)
    title = f"A DASP step next to a plain forward, CAV-MAE ViT-B, {torch.get_num_threads()} threads"
    write_figures(options.json, title, options_of(options), figures | {"met": met_in_the_paper()})


def show(batch: int, found: dict[str, dict]) -> None:
    table = Table(title=f"CAV-MAE ViT-B, batch {batch}, float32, {torch.get_num_threads()} threads")
    heads = ("case", "time", "low to high", "processor", "arithmetic", "memory")
    for head in heads:
        table.add_column(head, justify="left" if head == "case" else "right")
    words = {"source": "plain forward", "stream": "dasp, the paper's stream"}
    for case, row in found.items():
        table.add_row(
            words.get(case, f"dasp, {case} flagged"),
            f"{row['ratio']:.3f}",
            f"{row['low']:.2f} to {row['high']:.2f}",
            f"{row['processor_ratio']:.3f}",
            f"{row['arithmetic']:.3f}",
            f"{row['memory']:.3f}",
        )
    Console().print(table)


if __name__ == "__main__":
    main()
