import pytest
import torch

from dasp.core.errors import OptionError
from dasp.data.shapes import SoundingShapes
from dasp.page.pictures import wav_file
from dasp.page.streams import BuiltInStream
from dasp.streams.domains import Domain, DomainDamage
from dasp.streams.protocols import visits


def small(per_domain=1):
    return BuiltInStream(batch=4, pool=6, per_domain=per_domain)


def corrupt(modality, corruption, severity):
    return {"do": "corrupt", "modality": modality, "corruption": corruption, "severity": severity}


def test_it_plays_the_papers_order_and_begins_again():
    stream = small()
    stream.control({"do": "order", "value": "interleaved"})
    order = [visit.conditions[0].domains[0] for visit in visits("interleaved", 5)]
    slow = {"frost", "crowd"}  # each takes seconds: only their place in the order is checked
    for domain in [*order, order[0]]:
        if domain.corruption in slow:
            assert stream.state()["damage"][domain.modality]["corruption"] == domain.corruption
            stream._played += 1
            continue
        words = f"{domain.corruption.replace('_', ' ')} 5"
        assert stream.next().truth == {domain.modality: words}


def test_damage_chosen_by_hand_is_what_the_bench_would_load():
    stream = small()
    stream.control(corrupt("video", "fog", 3))
    stream.control(corrupt("audio", "gaussian_noise", 2))
    batch = stream.next()
    assert batch.truth == {"video": "fog 3", "audio": "gaussian noise 2"}
    for domain in (Domain("video", "fog", 3), Domain("audio", "gaussian_noise", 2)):
        shapes = SoundingShapes("test", 6, damage=DomainDamage(domain))
        for index in range(4):
            value = batch.inputs[domain.modality][index]
            expected = shapes[index].inputs[domain.modality]
            torch.testing.assert_close(value, expected, rtol=1e-4, atol=1e-4)
            assert int(batch.labels[index]) == shapes.label(index)
    assert batch.sounds[1] == wav_file(shapes.wave(1))
    stream = small()  # severity 0 is clean, and samples are repeated
    stream.control(corrupt("video", "fog", 0))
    stream.control(corrupt("audio", "rain", 0))
    first, second = stream.next(), stream.next()
    assert first.truth == second.truth == {}
    assert second.labels.tolist()[2:] == first.labels.tolist()[:2]  # a pool of six
    assert torch.equal(next(iter(stream)).inputs["video"], first.inputs["video"])


def test_taking_over_by_hand_begins_with_the_damage_of_the_order():
    stream = small(per_domain=2)
    stream.control({"do": "order", "value": "interleaved"})
    stream.control({"do": "severity", "value": 4})
    stream.next()
    stream.control({"do": "order", "value": "manual"})
    damage = stream.state()["damage"]
    assert damage["video"] == {"corruption": "gaussian_noise", "severity": 4}
    assert damage["audio"]["severity"] == 0
    stream.control(corrupt("audio", "wind", 1))
    assert set(stream.next().truth) == {"audio", "video"}
    stream.control({"do": "order", "value": "interleaved"})
    assert stream.next().truth == {"video": "gaussian noise 4"}  # the second batch of its domain
    assert stream.next().truth == {"video": "shot noise 4"}


@pytest.mark.parametrize(
    "command",
    [corrupt("smell", "fog", 1), corrupt("audio", "fog", 1), corrupt("video", "fog", 6),
     corrupt("video", "fog", True), corrupt("video", "fog", None), corrupt("video", ["fog"], 1),
     {"do": "corrupt"}, {"do": "order", "value": "sorted"}, {"do": "order"},
     {"do": "severity", "value": 0}, {"do": "sing"}],
)  # fmt: skip
def test_an_invalid_command_changes_nothing(command):
    stream = small()
    before = stream.state()
    with pytest.raises(OptionError):
        stream.control(command)
    assert stream.state() == before
