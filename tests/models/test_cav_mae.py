import pytest
import torch

import dasp
from dasp.core.errors import ContractError, InputError, OptionError
from dasp.methods.model_check import check_model
from dasp.models import CavMae, CavMaeDepth, load_model
from dasp.models.layers import sincos_positions

SMALL = {
    "embed_dim": 16, "num_heads": 2, "depth": 2, "audio_length": 48, "mel_bins": 32,
    "image_size": 32, "num_classes": 5,
}  # fmt: skip


@pytest.fixture
def model():
    torch.manual_seed(0)
    return CavMae(**SMALL).eval()


@pytest.fixture
def inputs():
    torch.manual_seed(1)
    return {"audio": torch.randn(3, 48, 32), "video": torch.randn(3, 3, 32, 32)}


@pytest.fixture
def model3():
    torch.manual_seed(0)
    return CavMaeDepth(**SMALL).eval()


@pytest.fixture
def inputs3(inputs):
    return inputs | {"depth": torch.randn(3, 3, 32, 32)}


def test_tokens_and_embeddings_agree_with_the_reference(
    reference_model, reference_batches, figures
):
    dasp_figures = figures("dasp")
    with torch.no_grad():
        for i, batch in enumerate(reference_batches):
            tokens = reference_model.encode(batch)
            for name in ("audio", "video"):
                if i == 0:
                    expected = dasp_figures[f"tokens_{name[0]}0"]
                    torch.testing.assert_close(tokens[name], expected, atol=1e-5, rtol=0)
                alone = reference_model.fuse({name: tokens[name]}).embedding
                expected = dasp_figures[f"embed_{name[0]}{i}"]
                torch.testing.assert_close(alone, expected, atol=1e-5, rtol=0)


def test_the_published_size():
    with torch.device("meta"):
        model = CavMae()
    assert sum(p.numel() for p in model.parameters()) == pytest.approx(164.4e6, rel=0.01)
    assert model.positions["audio"].shape == (1, 512, 768)
    assert model.positions["video"].shape == (1, 196, 768)


@pytest.mark.parametrize("fusion_depth", [1, 2])
def test_attention_maps_change_nothing_and_sum_to_one(inputs, fusion_depth):
    model = CavMae(**SMALL, fusion_depth=fusion_depth).eval()
    check_model(model, inputs)
    assert len(model.fusion_qkv()) == 2 * fusion_depth
    tokens = model.encode(inputs)
    plain, shown = model.fuse(tokens), model.fuse_with_attention(tokens)
    assert plain.attention is None
    torch.testing.assert_close(plain.logits, shown.logits, atol=1e-5, rtol=0)
    weights = shown.attention.weights
    assert weights.shape == (3, 2, 6 + 4, 6 + 4)
    torch.testing.assert_close(weights.sum(dim=-1), torch.ones(3, 2, 10))
    assert shown.attention.spans == {"audio": slice(0, 6), "video": slice(6, 10)}
    assert weights.requires_grad


def test_audio_comes_first_whatever_the_order(model, inputs):
    tokens = model.encode(inputs)
    swapped = {"video": tokens["video"], "audio": tokens["audio"]}
    assert torch.equal(model.fuse(tokens).logits, model.fuse(swapped).logits)


@pytest.mark.parametrize(
    ("name", "shape"), [("audio", (3, 32, 48)), ("video", (3, 3, 32, 31)), ("video", (3, 32, 32))]
)
def test_a_wrong_shape_says_what_it_takes(model, name, shape):
    with pytest.raises(InputError, match=f"'{name}' has shape .* expected"):
        model.encode({name: torch.zeros(shape)})
    with pytest.raises(InputError, match="at least one"):
        model.fuse({})


@pytest.mark.parametrize("size", [{"audio_length": 50}, {"image_size": 30}, {"num_heads": 3}])
def test_impossible_sizes(size):
    with pytest.raises(OptionError, match="is not a multiple"):
        CavMae(**(SMALL | size))


def test_without_prompts_the_opened_encoder_is_the_encoder(model, inputs):
    layered = model.encode_prompted(model.embed(inputs), {})
    for name, tokens in model.encode(inputs).items():
        assert torch.equal(layered[name].tokens, tokens)
        last = model.shared_blocks[0].norm1(tokens).mean(dim=1)
        assert torch.equal(layered[name].features[-1], last)
        assert layered[name].features.shape == (model.encoder_depth()[name], 3, 16)


def test_prompts_take_part_in_their_own_layer_alone(model, inputs):
    prompts = {"audio": torch.randn(2, 5, 16)}
    embedded = model.embed(inputs)
    first, second = model.blocks["audio"]
    x = first(torch.cat([prompts["audio"][0].expand(3, 5, 16), embedded["audio"]], dim=1))[:, 5:]
    feature = second.norm1(x).mean(dim=1)
    x = second(torch.cat([prompts["audio"][1].expand(3, 5, 16), x], dim=1))[:, 5:]
    layered = model.encode_prompted(embedded, prompts)
    assert torch.equal(layered["audio"].tokens, x)
    assert torch.equal(layered["audio"].features[0], feature)
    assert torch.equal(layered["video"].tokens, model.encode(inputs)["video"])


def test_own_norms_replace_the_shared_ones(model, inputs):
    tokens = model.encode(inputs)
    for name in model.modalities:
        alone = {name: tokens[name]}
        assert torch.equal(model.fuse_own_norm(alone).logits, model.fuse(alone).logits)
        for own in (model.shared_blocks[0].own_norm1, model.shared_blocks[0].own_norm2):
            torch.nn.init.normal_(own[name].weight)
        torch.nn.init.normal_(model.own_norm[name].bias)
    changed = {n: model.fuse_own_norm({n: own}).embedding for n, own in tokens.items()}
    for name, embedding in changed.items():
        assert not torch.allclose(embedding, model.fuse({name: tokens[name]}).embedding, atol=0.01)


def test_a_third_sensor_keeps_the_contract_and_has_all_parts(model3, inputs3):
    check_model(model3, inputs3)
    tokens = model3.encode(inputs3)
    assert tokens["depth"].shape == (3, 16, 16)
    shown = model3.fuse_with_attention(tokens).attention
    assert list(shown.spans) == ["audio", "video", "depth"]
    assert shown.spans["depth"] == slice(10, 26)
    assert shown.weights.shape == (3, 2, 26, 26)
    assert model3.encoder_depth() == {"audio": 2, "video": 2, "depth": 2}
    layered = model3.encode_prompted(model3.embed(inputs3), {})
    for name in tokens:
        torch.testing.assert_close(layered[name].tokens, tokens[name])
    before = model3.fuse_own_norm({"depth": tokens["depth"]}).logits
    with torch.no_grad():
        model3.shared_blocks[0].own_norm1["depth"].weight.mul_(2)
    assert not torch.allclose(before, model3.fuse_own_norm({"depth": tokens["depth"]}).logits)


def test_sizes_are_checked_and_named():
    with pytest.raises(OptionError, match="range_size=30 is not a multiple"):
        CavMaeDepth(**SMALL, range_size=30)
    with pytest.raises(OptionError, match="did you mean 'range_size'"):
        load_model("cav_mae_depth", range_sizes=16)
    sizes = SMALL | {"range_size": 16, "range_blocks": 1}
    assert load_model("cav_mae_depth", **sizes).encoder_depth()["depth"] == 1


@pytest.mark.parametrize("method", ["tsa", "sumi"])
def test_methods_for_two_refuse_it(model3, method):
    with pytest.raises(ContractError, match="defined for two modalities"):
        dasp.adapt(model3, method)


@pytest.mark.parametrize("method", ["tent", "eata", "sar", "read", "abpem", "pta", "dasp"])
def test_methods_for_any_number_of_modalities_adapt_it(model3, inputs3, method):
    outcome = dasp.adapt(model3, method, lr=1e-2)(inputs3)
    assert outcome.logits.shape == (3, 5)
    assert outcome.rejected is None


def test_positions_tell_rows_from_columns():
    grid = sincos_positions(2, 3, 8).view(2, 3, 8)
    assert torch.equal(grid[0, :, :4], grid[1, :, :4])  # the first half sees the column
    assert torch.equal(grid[:, 0, 4:], grid[:, 2, 4:])  # the second half sees the row
    assert len({tuple(row.tolist()) for row in grid.flatten(0, 1)}) == 6
    with pytest.raises(ValueError, match="divisible by 4"):
        sincos_positions(2, 2, 6)
