"""Read the fields of a parsed file, and say what is wrong with them."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from dasp.core.errors import InputError


@contextmanager
def reading(remedy: str) -> Iterator[None]:
    """Turn a missing field, or one of another kind, into an `InputError` that ends in the remedy.

    >>> with reading("run it again"):
    ...     {}["key"]
    Traceback (most recent call last):
    dasp.core.errors.InputError: the field 'key' is missing; run it again.
    """
    try:
        yield
    except InputError:
        raise
    except KeyError as error:
        raise InputError(f"the field {error} is missing; {remedy}.") from error
    except (TypeError, ValueError, AttributeError) as error:
        raise InputError(f"its fields are not of the right kind ({error}); {remedy}.") from None


def view_fields(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return what every file about one model in all domains of a severity says of itself."""
    cell = content["cell"]
    return {
        "key": str(content["key"]),
        "data": dict(cell["data"]),
        "model": {"name": cell["model"]["name"], **cell["model"]},
        "severity": int(cell["severity"]),
        "batch_size": int(cell["batch_size"]),
        "seed": int(cell["seed"]),
        "corruptions": tuple(cell["corruptions"]),
        "modalities": tuple(content["result"]["modalities"]),
    }
