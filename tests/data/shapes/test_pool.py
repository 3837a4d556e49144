import numpy as np
import torch

from dasp.data.shapes import ShapePairs, ShapeTriples


def test_pairs_are_new_each_epoch_and_the_same_when_asked_again(tmp_path):
    pairs = ShapePairs("balanced", 72, tmp_path, per_class=2)
    inputs, labels = pairs.batch(np.arange(72))
    assert inputs["audio"].shape == (72, 64, 128)
    assert inputs["video"].shape == (72, 3, 64, 64)
    assert torch.bincount(labels).tolist() == [2] * 36
    pairs.set_epoch(1)
    assert not torch.equal(pairs.batch(np.arange(72))[0]["audio"], inputs["audio"])
    again = ShapePairs("balanced", 72, tmp_path, per_class=2)
    torch.testing.assert_close(again.batch(np.arange(72))[0], inputs, rtol=0, atol=0)
    single, label = again[5]
    torch.testing.assert_close(single["video"], inputs["video"][5])
    assert label == int(labels[5])


def test_another_seed_pairs_otherwise_from_the_same_pool(tmp_path):
    one = ShapePairs("balanced", 72, tmp_path, per_class=2, seed=0)
    files = sorted(tmp_path.rglob("*.npy"))
    dates = [file.stat().st_mtime_ns for file in files]
    two = ShapePairs("balanced", 72, tmp_path, per_class=2, seed=1)
    assert dates == [file.stat().st_mtime_ns for file in sorted(tmp_path.rglob("*.npy"))]
    first, second = one.batch(np.arange(72))[0], two.batch(np.arange(72))[0]
    assert not torch.equal(first["audio"], second["audio"])


def test_a_pair_is_of_one_class_where_nothing_is_bad(tmp_path):
    pairs = ShapePairs("balanced_easy", 36, tmp_path, per_class=1)
    inputs, labels = pairs.batch(np.arange(36))
    assert labels.tolist() == list(range(36))
    assert len(np.unique(inputs["video"].flatten(1).numpy(), axis=0)) == 36
    frames = np.load(next(tmp_path.rglob("frames.npy")))
    assert frames.shape == (37, 64, 64, 3)


def test_triples_are_pairs_with_a_third_sensor(tmp_path):
    pairs = ShapePairs("balanced", 72, tmp_path, per_class=2, seed=3)
    triples = ShapeTriples("balanced", 72, tmp_path, per_class=2, seed=3)
    first = triples.batch(np.arange(72))[0]["depth"]
    for epoch in (1, 0):
        pairs.set_epoch(epoch)
        triples.set_epoch(epoch)
        two, labels = pairs.batch(np.arange(72))
        three, same = triples.batch(np.arange(72))
        assert torch.equal(labels, same)
        assert all(torch.equal(two[name], three[name]) for name in two)
        assert three["depth"].shape == (72, 3, 32, 32)
        assert torch.equal(three["depth"], first) == (epoch == 0)


def test_tokens_take_the_place_of_what_is_encoded_once(tmp_path):
    triples = ShapeTriples("balanced", 36, tmp_path, per_class=2)
    raw = triples.batch(np.arange(36))[0]
    triples.encode_once(lambda batch: {n: v.mean(dim=-1) for n, v in batch.items()}, ("audio",))
    found = triples.batch(np.arange(36))[0]
    torch.testing.assert_close(found["audio"], raw["audio"].mean(dim=-1))
    assert torch.equal(found["video"], raw["video"])
