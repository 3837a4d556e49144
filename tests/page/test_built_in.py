import numpy as np
import pytest
import torch

from dasp.core.errors import OptionError
from dasp.data.shapes import SoundingShapes
from dasp.page.built_in import BuiltInStream
from dasp.page.demo import demo_session
from dasp.streams.domains import Domain, DomainDamage
from dasp.streams.protocols import visits


def small(per_domain=1):
    return BuiltInStream(batch=4, pool=6, per_domain=per_domain)


def corrupt(modality, corruption, severity):
    return {
        "do": "corrupt",
        "modality": modality,
        "corruption": corruption,
        "severity": severity,
    }


def test_it_plays_the_papers_order_by_itself_and_begins_anew():
    stream = small()
    order = [visit.conditions[0].domains[0] for visit in visits("interleaved", 5)]
    cheap = {"frost", "crowd"}  # each takes seconds; their place is held all the same
    for domain in [*order, order[0]]:
        if domain.corruption in cheap:
            assert stream.state()["damage"][domain.modality]["corruption"] == domain.corruption
            stream._played += 1
            continue
        words = f"{domain.corruption.replace('_', ' ')} 5"
        assert stream.next().truth == {domain.modality: words}


def test_what_is_chosen_by_hand_is_what_the_bench_would_load():
    stream = small()
    stream.obey(corrupt("video", "fog", 3))
    stream.obey(corrupt("audio", "gaussian_noise", 2))
    taken = stream.next()
    assert taken.truth == {"video": "fog 3", "audio": "gaussian noise 2"}
    for modality, domain in (
        ("video", Domain("video", "fog", 3)),
        ("audio", Domain("audio", "gaussian_noise", 2)),
    ):
        shapes = SoundingShapes("test", 6, damage=DomainDamage(domain))
        for place in range(4):
            own = taken.inputs[modality][place]
            torch.testing.assert_close(own, shapes[place].inputs[modality], rtol=1e-4, atol=1e-4)
            assert int(taken.labels[place]) == shapes.label(place)
    shapes = SoundingShapes("test", 6, damage=DomainDamage(Domain("audio", "gaussian_noise", 2)))
    np.testing.assert_array_equal(taken.sounds[1], shapes.wave(1))


def test_severity_0_is_clean_and_samples_go_round():
    stream = small()
    stream.obey(corrupt("video", "fog", 0))
    stream.obey(corrupt("audio", "rain", 0))
    first, second = stream.next(), stream.next()
    assert first.truth == second.truth == {}
    assert second.labels.tolist()[2:] == first.labels.tolist()[:2]  # a pool of six
    stream.restart()
    assert torch.equal(stream.next().inputs["video"], first.inputs["video"])


def test_taking_over_by_hand_begins_where_the_order_stands():
    stream = small(per_domain=2)
    stream.obey({"do": "severity", "value": 4})
    stream.next()
    stream.obey({"do": "order", "value": "manual"})
    damage = stream.state()["damage"]
    assert damage["video"] == {"corruption": "gaussian_noise", "severity": 4}
    assert damage["audio"]["severity"] == 0
    stream.obey(corrupt("audio", "wind", 1))
    assert set(stream.next().truth) == {"audio", "video"}
    stream.obey({"do": "order", "value": "interleaved"})
    assert stream.next().truth == {"video": "gaussian noise 4"}  # its second batch, as it stood
    assert stream.next().truth == {"video": "shot noise 4"}


@pytest.mark.parametrize(
    "wish",
    [
        corrupt("smell", "fog", 1),
        corrupt("audio", "fog", 1),
        corrupt("video", "fog", 6),
        corrupt("video", "fog", True),
        corrupt("video", "fog", None),
        corrupt("video", ["fog"], 1),
        {"do": "corrupt"},
        {"do": "order", "value": "sorted"},
        {"do": "order"},
        {"do": "severity", "value": 0},
        {"do": "sing"},
    ],
)
def test_an_impossible_wish_changes_nothing(wish):
    stream = small()
    before = stream.state()
    with pytest.raises(OptionError):
        stream.obey(wish)
    assert stream.state() == before


def test_the_demo_has_three_lanes_that_start_alike_and_share_one_encoding():
    session = demo_session(stream=BuiltInStream(batch=8, pool=16))
    update = session.next()
    said = [sample["predictions"] for sample in update.samples]
    assert all(len({str(lane) for lane in own.values()}) == 1 for own in said)
    assert set(update.point["overall"]) == {"Source", "READ", "DASP"}
    session.reset()
    assert session.next().point == update.point


def test_the_robust_demo_is_fitted():
    session = demo_session("robust", stream=BuiltInStream(batch=8, pool=16))
    assert session.about()["score"] == "distance from clean"
    assert "clean samples" in session.legend
