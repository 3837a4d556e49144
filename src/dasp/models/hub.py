"""Share models and adapted states as directories, here or on the Hugging Face Hub.

A directory has `model.safetensors` (weights and sizes), `state.safetensors` if a state belongs to
it, and a card, README.md. `from_pretrained` takes the path of one, or the name of a repository.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import nn

from dasp.core.errors import DataError, OptionError, cause
from dasp.core.extras import extra
from dasp.core.files import atomic_path
from dasp.models.weights import MODELS, load_trained, save_weights

WEIGHTS, STATE, CARD = "model.safetensors", "state.safetensors", "README.md"


def save_pretrained(model: nn.Module, folder: str | Path, adaptation: Any = None) -> Path:
    """Write a model of this package to a directory, and the state of an adaptation of it.

    Args:
        model: a registered model (`MODELS`) with its source weights.
        folder: directory to write.
        adaptation: what `dasp.adapt` returned for this model, to share what it has learned.
    """
    if type(model) not in MODELS.values():
        raise OptionError(
            f"{type(model).__name__} is not a model of this package ({', '.join(MODELS)}): share "
            "its own weights by its own means, and a state by tta.save()."
        )
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    if adaptation is None:
        save_weights(model, folder / WEIGHTS)
    else:
        state = adaptation.state()
        adaptation.reset()  # the weights of the source belong beside it
        save_weights(model, folder / WEIGHTS)
        adaptation.load_state(state)
        adaptation.save(folder / STATE)
    with atomic_path(folder / CARD) as part:
        part.write_text(_card(model, adaptation))
    return folder


def from_pretrained(place: str | Path) -> tuple[nn.Module, Path | None]:
    """Return the model of a directory or repository, and the path of its state if it has one.

    `tta = dasp.adapt(model, method); tta.load(path)` then continues from that state.
    """
    folder = Path(place)
    if not folder.is_dir():
        hub = extra("huggingface_hub", "hub")
        try:
            folder = Path(hub.snapshot_download(str(place)))
        except Exception as error:
            raise DataError(
                f"{place} is not a directory and not a repository that can be fetched: "
                f"{cause(error)}."
            ) from error
    state = folder / STATE
    return load_trained(folder / WEIGHTS), state if state.is_file() else None


def push_to_hub(
    model: nn.Module, repository: str, folder: str | Path, adaptation: Any = None, **options: Any
) -> str:
    """Write a model to a directory and upload it to a repository; return its address.

    Args:
        model: as for `save_pretrained`.
        repository: its name, such as "me/sounding-shapes"; it is created if it does not exist.
        folder: directory to write first.
        adaptation: as for `save_pretrained`.
        **options: of `huggingface_hub.HfApi.create_repo`, such as `private=True`.
    """
    api = extra("huggingface_hub", "hub").HfApi()
    save_pretrained(model, folder, adaptation)
    address = str(api.create_repo(repository, exist_ok=True, **options))
    names: Sequence[str] = [WEIGHTS, STATE, CARD]
    api.upload_folder(repo_id=repository, folder_path=str(folder), allow_patterns=list(names))
    return address


def _card(model: Any, adaptation: Any) -> str:
    learned = "" if adaptation is None else f"\nAdapted state of `{adaptation!r}`: {STATE}.\n"
    return (
        "---\nlibrary_name: dasp\ntags: [test-time-adaptation, multi-modal]\n---\n\n"
        f"# {type(model).__name__}\n\nModalities: {', '.join(model.modalities)}. "
        f"Classes: {model.num_classes}.\n{learned}\n"
        "```python\nfrom dasp.models import from_pretrained\n\n"
        'model, state = from_pretrained("this repository")\n```\n'
    )
