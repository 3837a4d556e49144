"""Engines: where the runs of a plan are done.

`local` uses processes of this machine and needs nothing further; `ray` uses a Ray cluster, or
starts one here. Both do the same items of the same `Work` and write the same files.
"""

from importlib.util import find_spec

from dasp.bench.engines.local import LOCAL
from dasp.bench.work import Engine
from dasp.core.errors import OptionError

ENGINES = ("local", "ray")


def open_engine(name: str, **options: str | float | None) -> Engine:
    """Return an engine by name; `options` are those of `ray`, where None means its default."""
    given = {option: value for option, value in options.items() if value is not None}
    if name == "local":
        for option in given:
            flag = option.replace("_", "-")
            raise OptionError(f"--{flag} is for clusters: give --engine ray with it.")
        return LOCAL
    if find_spec("ray") is None:
        raise OptionError("the engine ray needs its extra: pip install 'dasp-tta[ray]'.")
    from dasp.bench.engines.ray import Ray

    return Ray(**given)  # type: ignore[arg-type]
