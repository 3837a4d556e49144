"""What goes to the workers of a cluster once: the work, the data's list, a user's own files."""

import hashlib
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import torch

import dasp
from dasp.bench.features import Features
from dasp.bench.material import DataOptions, Material
from dasp.bench.prepare import Place
from dasp.bench.references import absolute, find_model, move_file, own_file
from dasp.bench.work import Item, Work
from dasp.core.errors import DataError, OptionError


@dataclass(frozen=True)
class Shipment:
    """All that a worker needs to do any item of a run."""

    work: Work
    material: Material
    place: Place
    files: dict[str, bytes]  # a user's own, by the names that references give them
    folder: Path  # from which these names are seen
    device: str  # where models are put
    versions: dict[str, str]

    def unpack(self) -> None:
        """Make ready to do items here, after checking that this is the same software."""
        here = versions()
        for name, version in self.versions.items():
            if here[name] != version:
                raise OptionError(
                    f"a node of the cluster has {name} {here[name]}, and the run was started by "
                    f"{version}: install the same on all nodes."
                )
        for name, content in self.files.items():
            path = self.folder / name
            if not (path.is_file() and path.read_bytes() == content):
                path = Path(_own_folder().name) / hashlib.sha256(content).hexdigest() / path.name
                path.parent.mkdir(exist_ok=True)
                path.write_bytes(content)
            move_file(name, path)

    def features(self, model: str, digest: str) -> Features:
        """Open a model here; it must be the one that the run was planned with."""
        found = find_model(model).to(self.device)
        features = Features(self.material, found, self.place.open_store())
        if features.model_digest != digest:
            raise DataError(
                f"{model} has other weights on a node than where the run was started: copy the "
                "same file to all nodes, or put it on a path that they share."
            )
        return features


def pack(work: Work, items: Iterable[Item], place: Place, device: str = "cpu") -> Shipment:
    """Gather what the workers need; where a path is to be the same on all nodes, it is absolute."""
    references = {item.model for item in items}
    references |= {getattr(one, "method", "") for item in items for one in item.wanted}
    names = {name for name in map(own_file, references) if name is not None}
    return Shipment(
        work,
        _absolute(work.data).open(),
        replace(place, store=_on_nodes(place.store)),
        {name: Path(name).read_bytes() for name in names},
        Path.cwd(),
        device,
        versions(),
    )


def portable(item: Item) -> Item:
    """Return an item whose model is found from any folder."""
    return item if own_file(item.model) else replace(item, model=absolute(item.model))


@cache
def versions() -> dict[str, str]:
    """Return what must be the same on all nodes; of this package, the code itself."""
    code, root = hashlib.sha256(), Path(str(dasp.__file__)).parent
    for path in sorted(root.rglob("*.py")):
        code.update(path.relative_to(root).as_posix().encode())
        code.update(path.read_bytes())
    return {
        "dasp": f"{dasp.__version__} (code {code.hexdigest()[:8]})",
        "torch": torch.__version__.partition("+")[0],
    }


def _absolute(data: DataOptions) -> DataOptions:
    """Return data that are found from any folder."""
    names = ("root", "frost_dir", "noise_dir")
    paths = {name: getattr(data, name) for name in names}
    return replace(data, **{name: path and path.absolute() for name, path in paths.items()})


def _on_nodes(store: Path) -> Path:
    """Keep a path that each node reads in its own way."""
    return store if str(store)[:1] in ("~", "$") else store.resolve()


@cache
def _own_folder() -> "tempfile.TemporaryDirectory[str]":
    """Return a folder of this process alone, for files that are not on this machine."""
    return tempfile.TemporaryDirectory(prefix="dasp-own-")
