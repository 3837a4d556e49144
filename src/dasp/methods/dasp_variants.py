"""The variants of DASP: what each says where they differ."""

from collections.abc import Mapping
from typing import Any, Literal

from dasp.core.errors import OptionError
from dasp.methods.base import not_negative

Variant = Literal["released", "paper", "robust"]

_OURS_OFF = {
    "level": "lowest",
    "queue": 0,
    "label_mix": "even",
    "lambda_kl_biased": 0.0,
    "full_batch": 0,
    "collapse_guard": False,
}
VARIANTS: Mapping[Variant, Mapping[str, Any]] = {
    "released": {
        "score": "cosine",
        "dimension_filter": "joint",
        "threshold": "above",
        "none_biased": "source",
        "kl_from": "source",
        **_OURS_OFF,
    },
    "paper": {
        "score": "correlation",
        "dimension_filter": "own",
        "threshold": "reached",
        "none_biased": "adapt",
        "kl_from": "adapted",
        **_OURS_OFF,
    },
    "robust": {
        "score": "profile",
        "dimension_filter": "joint",
        "threshold": "above",
        "none_biased": "source",
        "kl_from": "source",
        "level": "own",
        "queue": 128,
        "label_mix": "healthy",
        "lambda_kl_biased": 0.1,
        "full_batch": 64,
        "collapse_guard": True,
    },
}
"""Each is an option of `Dasp` that can be switched alone."""

_WORDS = {
    "score": ("cosine", "correlation", "corrected", "profile"),
    "dimension_filter": ("joint", "own"),
    "threshold": ("above", "reached"),
    "none_biased": ("source", "adapt"),
    "kl_from": ("source", "adapted"),
    "level": ("lowest", "own"),
    "label_mix": ("even", "healthy"),
    "collapse_guard": (True, False),
}


def resolve(variant: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return every option: as given, or what the variant says where that is None; checked."""
    one_of("variant", variant, *VARIANTS)
    rules = {
        name: VARIANTS[variant][name] if value is None else value  # type: ignore[index]
        for name, value in given.items()
    }
    for name, allowed in _WORDS.items():
        one_of(name, rules[name], *allowed)
    not_negative(lambda_kl_biased=rules["lambda_kl_biased"])
    for name in ("queue", "full_batch"):
        if isinstance(rules[name], bool) or not isinstance(rules[name], int) or rules[name] < 0:
            raise OptionError(f"{name} must be a whole number from 0, not {rules[name]!r}.")
    return rules


def one_of(name: str, value: object, *allowed: object) -> None:
    """Refuse a value that is none of those allowed, by name."""
    if not any(
        value is choice or (value == choice and type(value) is type(choice)) for choice in allowed
    ):
        raise OptionError(f"{name} is one of {', '.join(map(repr, allowed))}, not {value!r}.")
