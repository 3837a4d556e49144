"""The whole way: media files on disk, a domain, batches, a model, adaptation."""

import pytest
import torch

import dasp
from dasp.data import Loader, open_manifest, prepare_tree
from dasp.models import CavMae
from dasp.streams import Domain, domain_dataset


@pytest.fixture(scope="module")
def tree(tmp_path_factory, media):
    folder = tmp_path_factory.mktemp("clips")
    for label in ("bark", "rain"):
        for number in range(3):
            path = folder / "videos" / label / f"{label}{number}.mp4"
            media.write_video(path, pitch=200.0 + 100 * number)
    prepare_tree(folder / "videos", folder / "data", workers=0)
    return folder / "data"


def test_clips_reach_a_model_and_adapt_it(tree):
    torch.manual_seed(0)
    model = CavMae(embed_dim=16, num_heads=2, depth=1, num_classes=2)
    tta = dasp.adapt(model, "dasp", delta=1e-6)
    dataset = domain_dataset(open_manifest(tree), Domain("video", "fog", 5))
    outcomes = [tta(batch.inputs) for batch in Loader(dataset, batch_size=4)]
    assert [len(outcome.logits) for outcome in outcomes] == [4, 2]
    assert all(torch.isfinite(outcome.logits).all() for outcome in outcomes)
    assert outcomes[0].updated
