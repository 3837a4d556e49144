"""The answers of every method stay as recorded for as long as its version and the loop's do.

A key of a result has these versions instead of the code. So whoever changes what a method computes
raises its `version` (or `LOOP_VERSION`), and records the answers anew:

    python tests/methods/test_versions.py
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import dasp
from dasp.bench.checks import trial, trial_batches
from dasp.bench.references import versions_of

RECORD = Path(__file__).with_suffix(".json")
COMMAND = "record them anew with `python tests/methods/test_versions.py`"
PRECISION = 1e-3  # wider than what processors differ by, finer than what an edit moves


# The answers were recorded with the defaults of the time, which did not follow the classes.
OPTIONS = {"eata": {"similarity": 0.05}, "sar": {"reset_below": 0.2}}


def answer(name):
    """Return the versions of a method, and the logits of four samples of each batch of a stream."""
    torch.set_num_threads(1)
    tta = trial(name, lr=1e-2, **OPTIONS.get(name, {}))
    logits = [tta(batch).logits[:4] for batch in trial_batches()]
    rounded = [[round(value, 5) for value in row] for row in torch.cat(logits).tolist()]
    return {"versions": versions_of(name), "logits": rounded}


@pytest.mark.parametrize("name", dasp.METHODS)
def test_numbers_move_only_with_the_version(name):
    record = json.loads(RECORD.read_text()).get(name)
    if record is None:
        pytest.skip(f"the answers of {name} are not recorded: {COMMAND}")
    found = answer(name)
    assert found["versions"] == record["versions"], f"another version of {name}: {COMMAND}"
    moved = (torch.tensor(found["logits"]) - torch.tensor(record["logits"])).abs().max()
    assert moved < PRECISION, f"the numbers of {name} moved: raise its version, and {COMMAND}"


@pytest.mark.parametrize(
    ("old", "new", "noticed"),
    [
        ("log_p.exp() * log_p", "log_p.exp() ** 2 * log_p", True),
        ("import torch\n", "# edited\nimport torch\n", False),
    ],
)
def test_an_edited_loss_is_noticed_and_a_comment_is_not(tmp_path, old, new, noticed):
    heavy = shutil.ignore_patterns("*.safetensors")
    copy = shutil.copytree(Path(dasp.__file__).parent, tmp_path / "dasp", ignore=heavy)
    losses = copy / "methods" / "losses.py"
    losses.write_text(losses.read_text().replace(old, new))
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", __file__, "-k", "tent"]
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == noticed, done.stdout
    assert ("the numbers of tent moved: raise its version" in done.stdout) == noticed


if __name__ == "__main__":
    lines = [f"{json.dumps(name)}: {json.dumps(answer(name))}" for name in dasp.METHODS]
    RECORD.write_text("{\n" + ",\n".join(lines) + "\n}\n")
