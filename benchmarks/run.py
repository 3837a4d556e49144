"""All benchmarks with one command: figures as JSON, then one table of ratios and their goals.

    make benchmarks                                   # or: python benchmarks/run.py
    python benchmarks/run.py growth samples           # only these
    python benchmarks/run.py --quick                  # a look, written to out/benchmarks

What is there of the same code and settings is not measured again (`--again` does), so a run that
was stopped goes on. A goal that is missed is said, and is no error; a benchmark that fails is.
At the end the figures and pictures of the pages in docs/ are made anew from the files (`page.py`).
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from measuring import HERE
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from suite import RESULTS, SUITE, Benchmark, judged

from page import fill_pages

OUT = HERE.parent / "out" / "benchmarks"
POLL = 0.5  # seconds


def main() -> int:
    options = parse()
    console = Console()
    folder = OUT / "quick" if options.quick else RESULTS
    chosen = [one for one in SUITE if not options.names or one.name in options.names]
    todo = [
        one
        for one in chosen
        if options.again or not one.is_done(folder / f"{one.name}.json", options.quick)
    ]
    for one in chosen:
        kept = "" if one in todo else "   kept: same code, same settings"
        console.print(f"{one.name:14}{minutes(one, options.quick):5.1f} minutes{kept}")
    failed = run_all(todo, folder, options.quick, console)
    show_goals(folder, console)
    if not options.quick:
        fill_pages()
    if failed:
        console.print(f"failed: {', '.join(failed)}; what they said is in {OUT}.")
    return 1 if failed else 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = [one.name for one in SUITE]
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(names))
    parser.add_argument("--quick", action="store_true", help="small sizes, to out/benchmarks")
    parser.add_argument("--again", action="store_true", help="measure what is done, too")
    options = parser.parse_args()
    for name in options.names:
        if name not in names:
            parser.error(f"no benchmark '{name}': there are {', '.join(names)}.")
    return options


def minutes(one: Benchmark, quick: bool) -> float:
    return one.quick_minutes if quick else one.minutes


def run_all(todo: list[Benchmark], folder: Path, quick: bool, console: Console) -> list[str]:
    """Run one after another, nothing beside it; return the names of those that failed."""
    failed = []
    folder.mkdir(parents=True, exist_ok=True)
    OUT.mkdir(parents=True, exist_ok=True)
    total = sum(minutes(one, quick) for one in todo)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    whole = TextColumn(f"of about {max(total, 1):.0f} minutes")
    with Progress(*columns, whole, console=console, disable=not todo) as bars:
        bar = bars.add_task("", total=total)
        for number, one in enumerate(todo, 1):
            bars.update(bar, description=f"{number} of {len(todo)}: {one.name}")
            before, length = bars.tasks[0].completed, minutes(one, quick)

            def tell(spent: float, before: float = before, length: float = length) -> None:
                bars.update(bar, completed=before + min(spent / 60, length))

            if not run_one(one, folder, quick, tell):
                failed.append(one.name)
            bars.update(bar, completed=before + length)
            console.print((OUT / f"{one.name}.txt").read_text(), highlight=False, markup=False)
    return failed


def run_one(one: Benchmark, folder: Path, quick: bool, tell: Callable[[float], None]) -> bool:
    """Run a benchmark in a process of its own, what it says kept; tell whether it ended well.

    `tell` is given the seconds since its start, again and again. If we are ended, so is it.
    """
    words = [*(one.quick if quick else one.words), "--json", f"{folder / one.name}.json"]
    with (OUT / f"{one.name}.txt").open("w") as output:
        process = subprocess.Popen(
            [sys.executable, str(one.path), *words], stdout=output, stderr=subprocess.STDOUT
        )
        begun = time.monotonic()
        try:
            while process.poll() is None:
                time.sleep(POLL)
                tell(time.monotonic() - begun)
        finally:
            process.terminate()
            process.wait()
    return process.returncode == 0


def show_goals(folder: Path, console: Console) -> None:
    table = Table(title="Ratios and their goals", title_justify="left")
    for head in ("benchmark", "figure", "goal", "measured", ""):
        table.add_column(head, justify="right" if head in ("goal", "measured") else "left")
    missed = 0
    for goal, value in judged(folder):
        if value is None:
            table.add_row(goal.result, goal.text, goal.bound, "–", "not measured yet")
        else:
            missed += not goal.met(value)
            verdict = "met" if goal.met(value) else "[bold red]missed[/]"
            table.add_row(goal.result, goal.text, goal.bound, f"{value:.3g}", verdict)
    console.print(table)
    console.print(f"{missed} goals missed." if missed else "No goal is missed.")


if __name__ == "__main__":
    sys.exit(main())
