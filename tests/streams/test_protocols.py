import itertools
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dasp.core.errors import OptionError
from dasp.core.seeding import numpy_generator
from dasp.corruptions import corruption, names
from dasp.corruptions.base import registry
from dasp.streams.protocols import CLEAN, ORDERS, PROTOCOLS, sample_order, sensors, visits

ORDER = [
    "video gaussian_noise", "video shot_noise", "audio gaussian_noise", "video impulse_noise",
    "video defocus_blur", "audio traffic", "video glass_blur", "video motion_blur", "audio crowd",
    "video zoom_blur", "video snow", "video frost", "audio rain", "video fog", "video brightness",
    "audio thunder", "video contrast", "video elastic_transform", "audio wind", "video pixelate",
    "video jpeg_compression",
]  # fmt: skip
IN_TURN = [f"{name.replace(' ', '/')}/4" for name in ORDER]


def stops(protocol, *settings):
    return [visit.name for visit in visits(protocol, *settings)]


COUNTS = {
    "per_domain/video": 15, "per_domain/audio": 6, "per_domain/depth": 6, "continual/video": 15,
    "continual/audio": 6, "continual/depth": 6, "interleaved": 21, "interleaved/depth": 27,
    "dirichlet": 21, "sorted": 21, "missing/audio": 21, "constant/video": 21, "pairs": 15,
    "clean": 1, "mixed": 1, "stretches": 42, "gradual": 36, "recurring": 420, "once": 21,
    "once_mixed": 1, "once/sensors": 36, "once_mixed/units": 1,
}  # fmt: skip


@pytest.mark.parametrize("protocol", COUNTS)
def test_where_a_method_starts_over(protocol):
    resets = [visit.reset for visit in visits(protocol, 5)]
    assert len(resets) == COUNTS[protocol]
    assert resets[0]
    assert set(resets[1:]) <= {protocol.startswith("per_domain")}


def test_a_users_own_corruption_changes_no_protocol_unless_it_is_named():
    before = {name: list(visits(name, 5, samples=1000)) for name in PROTOCOLS}
    for modality in ("video", "audio", "depth"):
        corruption(modality, "test_own", family="noise")(lambda sample, *_: sample)
    try:
        assert {name: list(visits(name, 5, samples=1000)) for name in PROTOCOLS} == before
        assert stops("continual/audio", 5, ("test_own",)) == ["audio/test_own/5"]
        both = ["video/fog/5", "video/test_own/5"]
        assert stops("per_domain/video", 5, ("test_own", "fog")) == both
        with pytest.raises(OptionError, match="test_own"):
            visits("interleaved", 5, ("test_own",))
    finally:
        for modality in ("video", "audio", "depth"):
            registry(modality).pop("test_own")


def test_the_papers_order_and_three_sensors_that_take_turns():
    assert stops("interleaved", 4) == IN_TURN
    found = stops("interleaved/depth", 4)
    assert [name for name in found if not name.startswith("depth")] == IN_TURN
    assert [name for name in found if name.startswith("depth")] == stops("continual/depth", 4)
    places = [place for place, name in enumerate(found) if name.startswith("depth")]
    assert all(4 <= b - a <= 5 for a, b in itertools.pairwise(places))


def test_a_model_must_take_what_a_protocol_touches():
    assert sensors("continual/depth") == {"depth"}
    assert sensors("interleaved/depth") == {"audio", "video", "depth"}
    assert sensors("long") == sensors("missing/video") == {"audio", "video"}
    assert sensors("clean") == set()


def test_some_corruptions_only():
    assert stops("interleaved", 5, ("rain", "fog")) == ["audio/rain/5", "video/fog/5"]
    with pytest.raises(OptionError, match="did you mean 'rain'"):
        visits("interleaved", 5, ("rian",))
    with pytest.raises(OptionError, match="severity"):
        visits("interleaved", 6)


def test_pairs_damage_both_modalities_and_leave_no_corruption_out():
    pairs = [condition.domains for visit in visits("pairs", 5) for condition in visit.conditions]
    assert {tuple(domain.modality for domain in pair) for pair in pairs} == {("video", "audio")}
    frames, sounds = (Counter(pair[place].corruption for pair in pairs) for place in (0, 1))
    assert sorted(frames) == sorted(names("video"))
    assert sorted(sounds) == sorted(names("audio"))
    assert min(sounds.values()) >= 2
    assert stops("pairs", 3)[3] == "video/defocus_blur/3+audio/rain/3"
    assert stops("pairs", 5, ("fog",)) == ["video/fog/5+audio/rain/5"]


def test_mixed_samples_come_from_everywhere_and_clean():
    (visit,) = visits("mixed", 4)
    assert visit.name == "mixed"
    assert [condition.name for condition in visit.conditions] == ["clean", *IN_TURN]
    assert visit.batches(samples=10, batch_size=64) == 4  # 220 samples


REPEATED = {"once": "interleaved", "once_mixed": "mixed"}
DEALT = [f"{kind}{group}" for kind in REPEATED for group in ("", "/sensors", "/units")]


def dealt(protocol, samples, seed, corruptions=()):
    """Return the samples of each condition, in the order of the stream."""
    found = []
    for visit in visits(protocol, 5, corruptions):
        places, rows = np.divmod(visit.numbers(samples, seed), samples)
        found += [rows[places == place].tolist() for place in range(len(visit.conditions))]
    return found


@pytest.mark.parametrize("protocol", DEALT)
def test_samples_that_come_once_meet_the_conditions_of_the_repeated_stream(protocol):
    kind, slash, group = protocol.partition("/")
    found, repeated = visits(protocol, 4), visits(f"{REPEATED[kind]}{slash}{group}", 4)
    assert [v.conditions for v in found] == [v.conditions for v in repeated]


@given(st.sampled_from(DEALT), st.integers(1, 400), st.integers(0, 99))
def test_every_sample_is_dealt_to_one_condition(protocol, samples, seed):
    found = dealt(protocol, samples, seed)
    assert sorted(itertools.chain(*found)) == list(range(samples))
    sizes = [len(own) for own in found]
    assert max(sizes) - min(sizes) <= 1
    assert sizes == sorted(sizes, reverse=True)  # whatever the seed: its runs can be paired
    assert dealt(protocol, samples, seed) == found


@given(st.sampled_from(DEALT), st.integers(1, 400), st.integers(1, 100))
def test_the_batches_of_dealt_samples_are_known_beforehand(protocol, samples, size):
    for visit in visits(protocol, 5):
        assert visit.batches(samples, size) == -(-len(visit.numbers(samples, 0)) // size)


def test_another_seed_deals_in_another_way_and_fewer_domains_have_more_each():
    for protocol in DEALT:
        assert dealt(protocol, 200, 0) != dealt(protocol, 200, 1)
    assert [len(own) for own in dealt("once", 40, 0, ("fog", "rain"))] == [20, 20]
    assert [len(own) for own in dealt("once_mixed", 40, 0, ("fog", "rain"))] == [14, 13, 13]


def test_where_samples_are_not_dealt_each_condition_has_all():
    for protocol in ("interleaved", "mixed", "clean", "pairs/units"):
        assert all(own == list(range(9)) for own in dealt(protocol, 9, 0))


def test_clean_stretches_come_before_each_domain():
    found = list(visits("stretches", 4))
    assert [visit.name for visit in found[1::2]] == IN_TURN
    assert all(visit.conditions == (CLEAN,) for visit in found[::2])
    assert [visit.number for visit in found[::2]] == list(range(21))
    assert {visit.number for visit in found[1::2]} == {0}


def test_severity_climbs_and_falls():
    found = stops("gradual", 5)
    assert [name.rsplit("/", 1)[1] for name in found[:9]] == list("123454321")
    assert len({name.rsplit("/", 1)[0] for name in found[:9]}) == 1
    assert Counter(name.split("/")[0] for name in found) == {"video": 18, "audio": 18}
    assert stops("gradual", 2, ("rain",)) == ["audio/rain/1", "audio/rain/2", "audio/rain/1"]


@pytest.mark.parametrize("kind", ["missing", "constant"])
@pytest.mark.parametrize("modality", ["audio", "video"])
def test_a_silent_modality_is_silent_in_every_other_domain(kind, modality):
    found = [condition for v in visits(f"{kind}/{modality}", 4) for condition in v.conditions]
    assert [condition.name for condition in found[::2]] == IN_TURN[::2]
    for condition, plain in zip(found[1::2], IN_TURN[1::2], strict=True):
        assert (condition.missing, condition.constant) == (
            ((modality,), ()) if kind == "missing" else ((), (modality,))
        )
        heard = [] if plain.startswith(modality) else [plain]
        assert condition.name == "+".join([*heard, f"{modality}/{kind}"])
        assert condition.domain(modality) is None


def test_when_a_domain_recurs_its_samples_come_in_another_order():
    found = list(visits("recurring", 4))
    assert [visit.name for visit in found] == IN_TURN * 20
    assert [visit.number for visit in found[::21]] == list(range(20))
    assert len({visit.purpose for visit in found}) == len(found)
    assert found[0].purpose == next(visits("interleaved", 4)).purpose == (IN_TURN[0],)


@pytest.mark.parametrize("samples", [64, 1024, 200_000])
def test_a_long_stream_is_long_enough_and_no_longer(samples):
    count = sum(1 for _ in visits("long", 5, samples=samples))
    assert count % 21 == 0
    assert count * samples >= 100_000
    assert count == 21 or (count - 21) * samples < 100_000


@given(
    order=st.sampled_from(ORDERS),
    labels=st.lists(st.integers(0, 9), min_size=1, max_size=200).map(np.array),
    size=st.integers(1, 300),
    seed=st.integers(0, 99),
)
def test_every_sample_comes_once_and_the_draws_decide(order, labels, size, seed):
    found = sample_order(order, labels, size, numpy_generator(seed, "order"))
    assert sorted(found) == list(range(len(labels)))
    again = sample_order(order, labels, size, numpy_generator(seed, "order"))
    assert np.array_equal(found, again)
    if order == "sorted":
        assert (np.diff(labels[found]) >= 0).all()


@pytest.mark.parametrize(
    ("order", "least", "most"), [("shuffled", 25, 36), ("dirichlet", 3, 15), ("sorted", 1, 4)]
)
def test_correlated_orders_show_few_classes_at_a_time(order, least, most):
    labels = np.arange(1024) % 36
    found = labels[sample_order(order, labels, 64, numpy_generator(0, "order"))]
    assert least < np.mean([len(set(batch)) for batch in np.split(found, 16)]) < most
