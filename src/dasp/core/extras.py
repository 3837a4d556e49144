"""Libraries that an extra of this package installs, imported when they are first used."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from dasp.core.errors import DataError

__all__ = ["Pillow", "extra"]


def extra(module: str, name: str = "media") -> Any:
    """Import a library of the extra `name`, or raise an error that says how to install it."""
    try:
        return import_module(module)
    except ImportError as error:
        raise DataError(
            f"'{module}' is not installed: pip install 'dasp-tta[{name}]', or in a clone "
            f".venv/bin/pip install -c constraints.txt -e '.[{name}]'."
        ) from error


class _Lazy:
    """Stands for a module of the extra "media" until one of its attributes is used."""

    def __init__(self, module: str) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        return getattr(extra(self._module), name)


if TYPE_CHECKING:
    from PIL import Image as Pillow
else:
    Pillow = _Lazy("PIL.Image")
