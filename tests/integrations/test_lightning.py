import pytest
import torch
from torch.utils.data import DataLoader

import dasp
from dasp.core.errors import InputError
from dasp.models import Toy

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture
def parts(tmp_path):
    lightning = pytest.importorskip("pytorch_lightning")
    from dasp.lightning import AdaptInPredict

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = Toy(seed=1)

        def predict_step(self, batch):
            return self.net.fuse(self.net.encode(batch)).logits

    def trainer(**options):
        callback = AdaptInPredict("dasp", lambda module: module.net, **options)
        quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
        kind = {"accelerator": "cpu", "devices": 1, "default_root_dir": tmp_path}
        return lightning.Trainer(callbacks=[callback], **kind, **quiet)

    return Module, trainer


def test_predict_adapts_and_leaves_the_module_as_it_was(parts, batches):
    module_class, trainer = parts
    module, alone = module_class(), dasp.adapt(Toy(seed=1), "dasp", lr=1e-2)
    before = {name: value.clone() for name, value in module.state_dict().items()}
    loader = DataLoader([(batch, torch.zeros(16)) for batch in batches], batch_size=None)
    found = trainer(lr=1e-2).predict(module, loader)
    assert any(answer["updated"] for answer in found)
    for answer, batch in zip(found, batches, strict=True):
        outcome = alone(batch)
        assert torch.equal(answer["logits"], outcome.logits)
        assert answer["diagnosis"]["biased"] == sorted(outcome.diagnosis.biased)
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    assert module.predict_step(batches[0]).shape == (16, 8)


def test_a_batch_without_names_is_refused_and_the_module_restored(parts):
    module_class, trainer = parts
    module = module_class()
    with pytest.raises(InputError, match="let the loader return"):
        trainer().predict(module, DataLoader(torch.zeros(2, 4, 12), batch_size=2))
    assert "predict_step" not in vars(module)
