"""What code a result was made by: a hash per file of the package that decides its numbers.

The key of a result has the `version` of the method and of the loop, which a developer raises when
numbers change; so code that only reads better keeps all results. These hashes are stored beside
the result instead, to notice code that was edited while the versions stayed. Comments, docstrings
and layout do not count.
"""

import ast
import inspect
from functools import cache
from pathlib import Path
from threading import Lock

from dasp.bench.references import find_method
from dasp.bench.results import Result, digest
from dasp.methods import Method

PACKAGE = Path(__file__).parents[1]
ROOMS = ("core", "corruptions", "data", "methods", "models", "streams")
VERSION = PACKAGE / "core/version.py"  # each release is another one
PARSER = Lock()  # Python before 3.11.8 must not parse in two threads at once
START = ("bench/cells.py", "bench/features.py", *(f"{room}/__init__.py" for room in ROOMS))


def code_of(method: str) -> dict[str, str]:
    """Return {file: hash} of what a run of a method executes: it is followed by imports."""
    kinds = [kind for kind in find_method(method).__mro__ if issubclass(kind, Method)]
    own = [Path(inspect.getfile(kind)) for kind in kinds if kind.__module__.startswith("dasp.")]
    todo, found = [*(PACKAGE / name for name in START), *own], {}
    while todo:
        path = todo.pop()
        name = path.relative_to(PACKAGE).as_posix()
        if name not in found:
            found[name], imported = read_code(path)
            todo += imported
    return dict(sorted(found.items()))


def code_of_features() -> str:
    """Hash what makes inputs and tokens: the code of any method without the methods."""
    return digest([own for own in code_of("source").items() if not own[0].startswith("methods/")])


@cache
def read_code(path: Path) -> tuple[str, list[Path]]:
    """Return the hash of what a file does, and the files of the rooms above that it imports."""
    with PARSER:
        tree = ast.parse(path.read_bytes())
    names = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    places = [PACKAGE.parent.joinpath(*name.split(".")) for name in names]
    files = [file for place in places for file in (place.with_suffix(".py"), place / "__init__.py")]
    rooms = [PACKAGE / room for room in ROOMS]
    imported = [f for f in files if {*f.parents} & {*rooms} and f.is_file() and f != VERSION]
    return digest(ast.unparse(_Bare().visit(tree)))[:8], imported


class _Bare(ast.NodeTransformer):
    """Removes strings that stand alone: docstrings, and those that describe a field."""

    def visit_Expr(self, node: ast.Expr) -> ast.Expr | None:
        return None if isinstance(node.value, ast.Constant) else node


def edited_files(method: str, result: Result) -> list[str]:
    """Return the files of a method that have other code now than when a result of it was made.

    Empty for a result without hashes, such as one of an earlier version.
    """
    before = result.measured.get("code", {})
    now = code_of(method) if before else {}
    return [name for name in sorted(now | before) if now.get(name) != before.get(name)]
