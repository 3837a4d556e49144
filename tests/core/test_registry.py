import pytest

from dasp.core.errors import OptionError, unknown_name
from dasp.core.registry import Registry


def test_unknown_name_gives_the_nearest():
    registry = Registry("method")
    registry.register("dasp")(object())
    with pytest.raises(OptionError, match="unknown method 'dsap': did you mean 'dasp'"):
        registry["dsap"]


def test_a_name_is_taken_once():
    registry = Registry("method")
    registry.register("dasp")(1)
    with pytest.raises(OptionError, match="registered already"):
        registry.register("dasp")(2)
    assert registry["dasp"] == 1
    assert len(registry) == 1
    assert "dasp" in registry


def test_unknown_name_without_anything_near():
    assert unknown_name("model", "zzz", ["a"]) == "unknown model 'zzz': There are: a."
