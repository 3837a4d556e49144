"""What the time of a call goes to, by kind of operation."""

import argparse
from collections import Counter
from collections.abc import Callable

from measuring import write_figures
from rich.console import Console
from rich.table import Table
from torch.profiler import ProfilerActivity, profile

KINDS = {
    "matrix products": ("aten::addmm", "aten::mm", "aten::bmm"),
    "attention": ("aten::_scaled_dot_product",),
    "convolution": ("aten::mkldnn_convolution", "aten::convolution"),
    "gelu": ("aten::gelu",),
    "norms": ("aten::native_layer_norm",),
    "copies and joins": ("aten::copy_", "aten::cat", "aten::clone", "aten::fill_"),
    "sums and scaling": ("aten::add", "aten::mul", "aten::div", "aten::sum"),
}


def print_profile(
    call: Callable[[], object], case: str, batch: int, options: argparse.Namespace
) -> None:
    """Print the share of the processor's time that each kind of operation takes."""
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        call()
    times: Counter[str] = Counter()
    for event in profiler.key_averages():
        times[kind_of(event.key)] += event.self_cpu_time_total
    table = Table(title=f"{case}, batch {batch}: what the time goes to")
    table.add_column("operations")
    table.add_column("share", justify="right")
    shares = {kind: round(time / times.total(), 4) for kind, time in times.most_common()}
    for kind, share in shares.items():
        table.add_row(kind, f"{100 * share:.1f}%")
    Console().print(table)
    write_figures(options.json, f"A profile, {case}", {"case": case, "batch": batch}, shares)


def kind_of(name: str) -> str:
    """Return the kind of an operation: forward and backward alike."""
    for kind, starts in KINDS.items():
        if name.startswith(starts):
            return kind if "backward" not in name else f"{kind}, backward"
    return "all else"
