"""Fill the tables of README.md and docs/ from benchmarks/results/*.json and results/.

    python tools/fill_pages.py              # also draws docs/growth/*.svg

A page has marked blocks; what stands between the marks is made here and never by hand:

    <!-- figures FILE/NAME/NAME -->         a table of what lies there in FILE.json
    <!-- goals -->  <!-- machine FILE -->  <!-- growth -->
    <!-- accuracy FOLDER PLAN -->  <!-- gains FOLDER PLAN -->  <!-- board FOLDER PLAN -->
    <!-- best FOLDER PREFIX ... -->  <!-- noise FOLDER PLAN ... -->  <!-- streams FOLDER -->
    <!-- harm FOLDER ... -->
    <!-- main FOLDER FOLDER FOLDER -->      tables of results, see result_tables.py
    <!-- leaderboard FOLDER -->             see leaderboard.py
    <!-- end -->

`tests/benchmarks` fails where a page disagrees with the files.
"""

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dasp.core.files import atomic_path

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

from leaderboard import leaderboard
from measuring import RESULTS, ROOT, find, shown, table, table_of, words
from result_tables import TABLES
from run import goal_table

DOCS = ROOT / "docs"
PAGES = (ROOT / "README.md", *sorted(DOCS.glob("*.md")))
OF_RESULTS = TABLES | {"leaderboard": leaderboard}
KINDS = "|".join((*OF_RESULTS, "figures", "goals", "machine", "growth"))
BLOCK = re.compile(rf"(<!-- ({KINDS}) ?([^>]*?) ?-->\n)(.*?)(<!-- end -->)", re.S)
LOOKS = (("#6f7682", "o"), ("#d1570c", "s"), ("#3b73c4", "^"))  # legible on white and on black


def fill_pages() -> None:
    """Write the pages and the pictures anew."""
    for path in PAGES:
        text = filled(path.read_text(), RESULTS)
        with atomic_path(path) as part:
            part.write_text(text)
    for name, curve in content("growth", RESULTS)["figures"].items():
        draw(curve, DOCS / "growth" / f"{name}.svg")


def filled(text: str, results: Path) -> str:
    """Return a page with every block made anew."""

    def block(match: re.Match[str]) -> str:
        opening, kind, what, _, closing = match.groups()
        if kind in OF_RESULTS:
            return f"{opening}{OF_RESULTS[kind](what)}{closing}"
        made = {"figures": figures, "goals": goals, "machine": machine, "growth": growth}[kind]
        return f"{opening}{made(what, results)}{closing}"

    return BLOCK.sub(block, text)


def content(name: str, results: Path) -> dict[str, Any]:
    return json.loads((results / f"{name}.json").read_text())


def goals(_: str, results: Path) -> str:
    return goal_table(results)


def machine(what: str, results: Path) -> str:
    rows = [(words(k), shown(value)) for k, value in content(what, results)["machine"].items()]
    return table(("", what), rows)


def figures(what: str, results: Path) -> str:
    name, *path = what.split("/")
    if not (results / f"{name}.json").exists():
        return "*Not measured yet.*\n"
    found = content(name, results)
    (part,) = find(found["figures"], path)
    return f"{table_of(part)}\nPrinted by `{found['command']}`.\n"


def growth(_: str, results: Path) -> str:
    """Return every curve: what its line is, how far the points lie from it, and the picture."""
    found, text = content("growth", results), []
    for name, curve in found["figures"].items():
        square = " squared" if curve["line_in_power"] == 2 else ""
        text.append(f"**{curve['y']}** against {curve['x']}{square}\n")
        rows = [
            (series, *(f"{curve['series'][series][end]:.3g}" for end in (0, -1)), *fit_of(fit))
            for series, fit in curve["fits"].items()
        ]
        ends = (f"at {curve['xs'][0]:g}", f"at {curve['xs'][-1]:g}")
        text.append(table(("", *ends, "fixed", "slope", "deviation", "exponent"), rows))
        text.append(f"![{curve['y']} against {curve['x']}](growth/{name}.svg)\n")
    return "\n".join([*text, f"Measured by `{found['command']}`.\n"])


def fit_of(fit: Mapping[str, float]) -> tuple[str, ...]:
    numbers = (f"{fit[name]:.2g}" for name in ("fixed", "slope"))
    return (*numbers, f"{fit['deviation']:.1%}", f"{fit['exponent']:.2f}")


def draw(curve: Mapping[str, Any], path: Path) -> None:
    """Draw the points measured and the lines fitted to them."""
    import numpy as np
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    ink = dict.fromkeys(("text.color", "axes.labelcolor", "xtick.color", "ytick.color"), "#767c87")
    with rc_context(ink | {"svg.hashsalt": "dasp", "svg.fonttype": "none"}):
        drawing = Figure((4.8, 3.0), layout="constrained")
        axes = drawing.subplots()
        places = np.linspace(curve["xs"][0], curve["xs"][-1], 41)
        for (label, values), (colour, marker) in zip(curve["series"].items(), LOOKS, strict=False):
            fit = curve["fits"][label]
            line = fit["fixed"] + fit["slope"] * places ** curve["line_in_power"]
            axes.plot(places, line, color=colour, linewidth=1)
            axes.plot(curve["xs"], values, marker, color=colour, markersize=4, label=label)
        axes.set(xlabel=curve["x"], ylabel=curve["y"], xlim=(0, None), ylim=(0, None))
        axes.set_facecolor("none")
        axes.spines[:].set_color("#767c87")
        axes.legend(frameon=False)
        path.parent.mkdir(exist_ok=True)
        drawing.savefig(path, transparent=True, metadata={"Date": None})


if __name__ == "__main__":
    fill_pages()
