import pytest
import torch
from torch import nn

import dasp
from dasp.core.errors import ContractError
from dasp.models import Toy


class Pair(nn.Module):
    """Two encoders, one of them in two parts, and a fusion by attention."""

    def __init__(self):
        super().__init__()
        self.ear = nn.ModuleDict({"trunk": nn.Sequential(nn.Conv1d(1, 6, 5), nn.ReLU())})
        self.eye, self.eye_map = nn.Sequential(nn.Linear(12, 9), nn.LayerNorm(9)), nn.Linear(9, 6)
        self.mix = nn.TransformerEncoderLayer(6, 2, 12, 0.0, batch_first=True)
        self.query, self.classifier = nn.Linear(6, 6), nn.Linear(6, 4)

    def forward(self, sound, frames, scale=1.0):
        sound = self.ear["trunk"](sound).transpose(1, 2)
        seen = self.eye_map(self.eye(frames))
        tokens = torch.cat([sound * self.query(sound), seen], dim=1)
        return {"logits": self.classifier(self.mix(tokens * scale).mean(dim=1))}


@pytest.fixture
def pair():
    torch.manual_seed(0)
    return Pair(), {"sound": torch.randn(6, 1, 20), "frames": torch.randn(6, 5, 12)}


def test_the_printed_line_wraps_the_model(pair, capsys):
    model, inputs = pair
    found = dasp.inspect(model, inputs)
    said = capsys.readouterr().out
    assert found["encoders"] == {"sound": "ear.trunk", "frames": "eye_map"}
    assert found["head"] == "classifier"
    (line,) = [line for line in said.splitlines() if line.startswith("dasp.wrap(")]
    wrapped = eval(line, {"dasp": dasp, "model": model, "inputs": inputs})
    assert wrapped.embed_dim == 6  # of both, and of the embedding
    assert "ear.trunk" in said
    assert "(B, 6, 16)" in said
    (query,) = [line for line in said.splitlines() if " query " in line]
    assert query.endswith("the input also goes past it")
    wrapped.close()
    assert not any("forward" in vars(module) for module in model.modules())


def test_every_registered_method_is_in_the_table(pair, capsys):
    dasp.inspect(*pair)
    rows = dict(
        line.split()[:2] for line in capsys.readouterr().out.splitlines()[-len(dasp.METHODS) :]
    )
    assert list(rows) == list(dasp.METHODS)
    for name, works in rows.items():
        model, inputs = pair
        encoders = {"sound": "ear.trunk", "frames": "eye_map"}
        with dasp.wrap(model, encoders=encoders, head="classifier", inputs=inputs) as own:
            if works == "yes":
                dasp.adapt(own, name)
            else:
                with pytest.raises(dasp.DaspError):
                    dasp.adapt(own, name)


def test_a_model_of_the_contract_needs_no_line(capsys, batches):
    assert dasp.inspect(Toy(depth=1), batches[0]) == {}
    said = capsys.readouterr().out
    assert "fulfils the contract" in said
    assert "dasp.wrap" not in said
    assert "brimpr    yes     fit() with clean samples" in said
    assert "sumi      yes     stream_length=" in said


class Early(nn.Module):
    """Joins its inputs before any module sees them."""

    def __init__(self):
        super().__init__()
        self.net = nn.Linear(4, 3)

    def forward(self, one, two):
        return self.net(one + two)


def test_early_fusion_is_refused():
    with pytest.raises(ContractError, match="no module of Early separates one and two"):
        dasp.inspect(Early(), {"one": torch.randn(4, 4), "two": torch.randn(4, 4)})


def test_a_single_input_is_one_modality(capsys):
    model = nn.Sequential(nn.Linear(6, 5), nn.LayerNorm(5), nn.Linear(5, 3))
    found = dasp.inspect(model, {"image": torch.randn(4, 6)})
    assert found == {"encoders": {"image": "1"}, "head": "2"}
    assert 'encoders={"image": "1"}, head="2"' in capsys.readouterr().out


def test_inputs_that_are_no_dict_are_refused(pair):
    model, inputs = pair
    with pytest.raises(ContractError, match=r"a dict of tensors \{modality: .* not tuple"):
        dasp.inspect(model, tuple(inputs.values()))
