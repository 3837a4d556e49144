"""Read the fields of a parsed file, and say what is wrong with them."""

from collections.abc import Iterator
from contextlib import contextmanager

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
