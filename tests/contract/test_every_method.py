import pytest

import dasp


@pytest.mark.parametrize("name", list(dasp.METHODS))
def test_it_keeps_the_contract(name):
    dasp.check_method(name)


def test_the_registered_methods_stand_in_the_order_of_tables():
    names = [
        "source", "tent", "eata", "sar", "read", "abpem", "sumi", "tsa", "pta", "brimpr", "dasp",
        "triage",
    ]  # fmt: skip
    assert [name for name in dasp.METHODS if name in names] == names
