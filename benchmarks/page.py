"""Fill the figures of docs/performance.md and docs/scaling.md from benchmarks/results/*.json.

    python benchmarks/page.py               # also draws docs/growth/*.svg

A page has marked blocks; what stands between the marks is made here and never by hand:

    <!-- figures FILE/NAME/NAME -->         a table of what lies there in FILE.json
    <!-- goals -->  <!-- machine FILE -->  <!-- growth -->
    <!-- end -->

`tests/benchmarks/test_page.py` fails where a page or a picture disagrees with the files.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from growth_figures import pictures
from measuring import HERE
from suite import RESULTS, find, judged, read

from dasp.core.files import atomic_path

DOCS = HERE.parent / "docs"
PAGES = (DOCS / "performance.md", DOCS / "scaling.md")
BLOCK = re.compile(
    r"(<!-- (figures|goals|machine|growth) ?([^>]*?) ?-->\n)(.*?)(<!-- end -->)", re.S
)
WIDE = 7  # columns
NOT_YET = "*Not measured yet.*\n"


def fill_pages() -> None:
    """Write the pages and the pictures anew."""
    for path in PAGES:
        text = filled(path.read_text(), RESULTS)
        with atomic_path(path) as part:
            part.write_text(text)
    for path, drawing in growth_pictures(RESULTS).items():
        with atomic_path(path) as part:
            part.write_text(drawing)


def growth_pictures(results: Path) -> dict[Path, str]:
    """Return the pictures that the file of growth curves gives, by path."""
    path = results / "growth.json"
    drawn = pictures(read(path)["figures"]) if path.exists() else {}
    return {DOCS / "growth" / f"{name}.svg": drawing for name, drawing in drawn.items()}


def filled(text: str, results: Path) -> str:
    """Return a page with every block made anew."""

    def block(match: re.Match[str]) -> str:
        opening, kind, what, _, closing = match.groups()
        return f"{opening}{BLOCKS[kind](what, results)}{closing}"

    return BLOCK.sub(block, text)


def goals(_: str, results: Path) -> str:
    rows = []
    for goal, value in judged(results):
        verdict = "–" if value is None else "met" if goal.met(value) else "**missed**"
        rows.append((goal.text, goal.bound, "–" if value is None else shown(value), verdict))
    return table(("", "goal", "measured", ""), rows)


def machine(what: str, results: Path) -> str:
    path = results / f"{what}.json"
    if not path.exists():
        return NOT_YET
    content = read(path)["machine"]
    rows = [(words(name), shown(value)) for name, value in content.items()]
    return table(("", what), rows)


def figures(what: str, results: Path) -> str:
    name, *path = what.split("/")
    file = results / f"{name}.json"
    if not file.exists():
        return NOT_YET
    content = read(file)
    found = list(find(content["figures"], path))
    if not found:
        raise KeyError(f"{file.name} has no figures at {'/'.join(path)}: mend the mark of the page")
    return f"{table_of(found[0])}\n`{content['command']}` prints it.\n"


def growth(_: str, results: Path) -> str:
    """Every curve: what its line is, how far the points lie from it, and the picture."""
    path = results / "growth.json"
    if not path.exists():
        return NOT_YET
    content = read(path)
    text = []
    for name, curve in content["figures"].items():
        square = " squared" if curve["line_in_power"] == 2 else ""
        text.append(f"**{curve['y']}** against {curve['x']}{square}\n")
        rows = [
            (series, *(f"{curve['series'][series][end]:.3g}" for end in (0, -1)), *fit_of(fit))
            for series, fit in curve["fits"].items()
        ]
        ends = (f"at {curve['xs'][0]:g}", f"at {curve['xs'][-1]:g}")
        text.append(table(("", *ends, "fixed", "slope", "from the line", "exponent"), rows))
        text.append(f"![{curve['y']} against {curve['x']}](growth/{name}.svg)\n")
    return "\n".join([*text, f"`{content['command']}` measures all of them.\n"])


def fit_of(fit: Mapping[str, float]) -> tuple[str, ...]:
    numbers = (f"{fit[name]:.2g}" for name in ("fixed", "slope"))
    return (*numbers, f"{fit['deviation']:.1%}", f"{fit['exponent']:.2f}")


def table_of(content: Any) -> str:
    """Return a table of a map of values, of a map of rows, or one for each map of rows."""
    if not all(isinstance(row, dict) for row in content.values()):
        return table(("", ""), [(words(name), shown(value)) for name, value in content.items()])
    if all(isinstance(part, dict) for row in content.values() for part in row.values()):
        return "\n".join(f"{words(name)}:\n\n{table_of(row)}" for name, row in content.items())
    columns = list(dict.fromkeys(name for row in content.values() for name in row))
    if len(columns) > max(WIDE, len(content)):  # too wide for a page: the other way round
        turned = {
            name: {label: row.get(name, "") for label, row in content.items()} for name in columns
        }
        return table_of(turned)
    ratio = {"ratio", "low", "high"} <= set(columns)  # one column instead of three
    kept = [name for name in columns if not (ratio and name in ("low", "high"))]
    rows = [
        (words(label), *(cell(row, name, ratio) for name in kept)) for label, row in content.items()
    ]
    heads = ["ratio (low to high)" if ratio and n == "ratio" else words(n) for n in kept]
    return table(("", *heads), rows)


def cell(row: Mapping[str, Any], name: str, ratio: bool) -> str:
    if name not in row:
        return ""
    return shown(row if ratio and name == "ratio" and "low" in row else row[name])


def table(heads: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [heads, ("---", *("---:" for _ in heads[1:])), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def words(name: str) -> str:
    return name.replace("_", " ").replace(" tb", " (TB)").replace(" mib", " (MiB)")


def shown(value: Any) -> str:
    if isinstance(value, dict) and {"ratio", "low", "high"} <= value.keys():
        return f"{value['ratio']:.2f} ({value['low']:.2f} to {value['high']:.2f})"
    if isinstance(value, dict):
        return ", ".join(f"{words(name)} {shown(own)}" for name, own in value.items())
    if isinstance(value, list):
        return ", ".join(map(shown, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


BLOCKS = {"figures": figures, "goals": goals, "machine": machine, "growth": growth}


if __name__ == "__main__":
    fill_pages()
