"""Prompts that are carried through encoders and fusion."""

import torch

from dasp.models import Toy


def test_without_prompts_it_is_the_model_itself(batches):
    model = Toy(depth=2, seed=1)
    none = {name: torch.zeros(0, 32) for name in model.modalities}
    with torch.no_grad():
        layered = model.encode_carrying(model.embed(batches[0]), none)
        plain = model.encode_prompted(model.embed(batches[0]), {})
        fused = model.fuse_carrying({n: layer.tokens for n, layer in layered.items()}, 0)
        expected = model.fuse(model.encode(batches[0]))
    for name in model.modalities:
        torch.testing.assert_close(layered[name].features, plain[name].features)
    torch.testing.assert_close(fused.logits, expected.logits)


def test_prompts_change_the_tokens_but_count_in_no_mean(batches):
    model = Toy(depth=1, seed=1)
    prompts = {name: torch.randn(3, 32) for name in model.modalities}
    with torch.no_grad():
        layered = model.encode_carrying(model.embed(batches[0]), prompts)
        tokens = {name: layer.tokens for name, layer in layered.items()}
        x = model.block(torch.cat(list(tokens.values()), dim=1))
        size = tokens["audio"].shape[1]
        own = torch.cat([x[:, 3:size], x[:, size + 3 :]], dim=1)
        fused = model.fuse_carrying(tokens, 3)
    torch.testing.assert_close(fused.embedding, model.norm(own).mean(dim=1))
    assert layered["audio"].features.shape == (1, 16, 32)


def test_an_encoder_without_layers_has_no_features(batches):
    model = Toy(seed=1)
    prompts = {name: torch.randn(2, 32) for name in model.modalities}
    layered = model.encode_carrying(model.embed(batches[0]), prompts)
    assert layered["video"].features.shape == (0, 16, 32)
