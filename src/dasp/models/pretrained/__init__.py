"""Source models that come with the package, made by `dasp train`; see docs/sounding_shapes.md."""

from pathlib import Path

from dasp.core.errors import OptionError, unknown_name

_FOLDER = Path(__file__).parent


def pretrained_names() -> list[str]:
    """Return the names of the models that come with the package."""
    return sorted(path.stem for path in _FOLDER.glob("*.safetensors"))


def pretrained_path(name: str) -> Path:
    """Return the weights of a model that comes with the package.

    >>> pretrained_path("sounding_shapes_0").name
    'sounding_shapes_0.safetensors'
    """
    if name not in pretrained_names():
        raise OptionError(unknown_name("pretrained model", name, pretrained_names()))
    return _FOLDER / f"{name}.safetensors"
