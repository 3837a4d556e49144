"""The full evaluation, counted: arithmetic of a model, runs of the plans, machines for them."""

from collections import Counter

import arithmetic
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scaling import schedule, size, traffic
from scaling_plan import arrays, conditions_of, full_evaluation, on_tokens, samples_of

from dasp.bench.plan import MAIN_PROTOCOLS
from dasp.methods import METHODS


def test_small_models_give_the_count_of_a_larger_one(monkeypatch):
    count = arithmetic.step("dasp")
    monkeypatch.setattr(arithmetic, "VIT_B", (64, 3))
    # Not to the digit: how many dimensions DASP's diagnosis leaves out depends on the values.
    assert arithmetic.at_vit_b(count) == pytest.approx(count(64, 3), rel=1e-6)


def test_the_arithmetic_of_an_encoder_is_that_of_its_formula():
    tokens, width, blocks = 196, 768, 11
    block = 2 * 12 * width**2 * tokens + 4 * tokens**2 * width
    patches = 2 * 3 * 16 * 16 * width * tokens
    counted = arithmetic.at_vit_b(arithmetic.stage(("video",), fused=False))
    assert counted == pytest.approx(blocks * block + patches, rel=1e-6)


@pytest.fixture(scope="module")
def cells():
    return full_evaluation("kinetics50")


def test_every_run_is_there_once(cells):
    main = (len(METHODS) + 2) * 5 * 5 * 10  # and the robust variant, fitted or not
    ablation, differences, sensitivity = 4 * 5 * 10, 9 * 3 * 10, 12 * 10
    assert len(cells) == main + ablation + differences + sensitivity
    assert len({cell.key for cell in cells}) == len(cells)


def test_a_method_passes_through_sixty_three_domains(cells):
    assert sum(conditions_of(protocol, 5) for protocol in MAIN_PROTOCOLS) == 63
    mine = [cell for cell in cells if (cell.label, cell.severity, cell.seed) == ("dasp", 3, 0)]
    assert sum(map(samples_of, mine)) == 63 * 2466


def test_arrays_are_those_that_the_store_would_hold(cells):
    found = Counter((part.modality, part.encoded) for part in arrays(cells))
    assert found == {(m, e): n for m, n in (("video", 76), ("audio", 31)) for e in (True, False)}
    tokens = sum(size(part, 1) for part in arrays(cells) if part.encoded)
    assert tokens == 4 * 768 * (76 * 196 + 31 * 512)
    halved = sum(size(part, 1, float16=True) for part in arrays(cells) if part.encoded)
    assert halved == tokens / 2


def test_a_run_reads_its_stream(cells):
    dasp = next(cell for cell in cells if cell.method == "dasp")
    tent = next(cell for cell in cells if cell.method == "tent")
    assert on_tokens(dasp) > on_tokens(tent)
    assert traffic(dasp) == samples_of(dasp) * 4 * 768 * (196 + 512)
    assert traffic(tent) == samples_of(tent) * 4 * (1024 * 128 + 3 * 224 * 224)


@given(st.lists(st.integers(1, 100), min_size=1), st.integers(1, 9))
def test_machines_share_runs_as_well_as_longest_first_does(lengths, places):
    end = schedule(lengths, places)
    best = max(max(lengths), -(-sum(lengths) // places))
    assert best <= end <= best * 4 / 3 + max(lengths)
    assert schedule(lengths, 1) == sum(lengths)
