import pytest
import torch

import dasp
from dasp.core.errors import DaspError
from dasp.data.shapes import SoundingShapes
from dasp.streams import Domain, DomainDamage


def test_the_example_stream_is_that_of_the_data_set():
    clean = dasp.example_stream(samples=6, batch_size=4)
    noisy = dasp.example_stream("audio", "traffic", 3, samples=6, batch_size=4)
    assert [len(labels) for _, labels in clean] == [4, 2]
    data = SoundingShapes("test", 6, damage=DomainDamage(Domain("audio", "traffic", 3)))
    assert torch.equal(noisy[1][0]["audio"][1], data[5].inputs["audio"])
    assert torch.equal(noisy[0][0]["video"], clean[0][0]["video"])
    assert not torch.equal(noisy[0][0]["audio"], clean[0][0]["audio"])
    assert noisy[1][1].tolist() == [data.label(4), data.label(5)]


@pytest.mark.parametrize("wrong", [("depth", "fog"), ("audio", "fog"), ("audio",), (None, "fog")])
def test_an_unknown_domain_is_refused(wrong):
    with pytest.raises(DaspError):
        dasp.example_stream(*wrong, samples=2)
