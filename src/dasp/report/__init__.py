"""Results as a DataFrame, tables, figures and one HTML page. Reads results; runs nothing.

The way through: `frame` (results to a DataFrame), `compare` (what may be compared, means, paired
intervals), `tables` and `published` (one function per table), `formats` (CSV, Markdown, LaTeX,
terminal), `figures` (one function per figure), `render` (what a section shows, and the page).
"""

from importlib.util import find_spec

from dasp.core.errors import InputError

for _name in ("pandas", "matplotlib", "jinja2"):
    if find_spec(_name) is None:
        raise InputError(
            f"results as tables and figures need '{_name}': pip install 'dasp-tta[bench]', or from "
            "a clone .venv/bin/pip install -c constraints.txt -e '.[bench]'."
        )
