"""Data sets by name, and the one door to all layouts."""

from dataclasses import dataclass
from pathlib import Path

from dasp.core.errors import DataError, OptionError, unknown_name
from dasp.data.folders import read_folders
from dasp.data.manifest import Manifest
from dasp.data.read_list import read_list


@dataclass(frozen=True)
class Spec:
    """What a published data set holds, and the names READ's release gives its parts."""

    clips: int
    classes: int
    list_file: str
    label_file: str
    audio_dir: str
    video_dir: str


SPECS = {
    "kinetics50": Spec(
        clips=2466,
        classes=50,
        list_file="ks50_test_refer.json",
        label_file="class_labels_indices_ks50.csv",
        audio_dir="audio_val256_k=50",
        video_dir="image_mulframe_val256_k=50",
    ),
    "vggsound": Spec(
        clips=14046,
        classes=309,
        list_file="vgg_test_refer.json",
        label_file="class_labels_indices_vgg.csv",
        audio_dir="audio_test",
        video_dir="image_mulframe_test",
    ),
}


def open_manifest(
    root: str | Path,
    dataset: str | None = None,
    split: str = "test",
    list_file: str | Path | None = None,
    label_file: str | Path | None = None,
) -> Manifest:
    """Find the clips below `root`.

    With `dataset` ("kinetics50", "vggsound"): READ's release, its list and label files at the
    root or given here, its sounds and frames in the folders of the release.
    Without: the list `<split>.json` and `labels.csv` at the root or given here, as
    `dasp prepare` writes them; where there is no list, the plain layout of `read_folders`.
    """
    base = Path(root)
    if not base.is_dir():
        raise DataError(f"no folder {base}: give the root of the data set.")
    if dataset is not None:
        spec = spec_of(dataset)
        release_list = Path(list_file or base / spec.list_file)
        release_labels = Path(label_file or base / spec.label_file)
        for path in (release_list, release_labels):
            if not path.is_file():
                raise DataError(
                    f"no file {path}: {dataset} is read with the list and the label file of "
                    "READ's release; copy both there, or give --list-file and --label-file."
                )
        return read_list(
            release_list,
            release_labels,
            base,
            spec.audio_dir,
            spec.video_dir,
            dataset,
        )
    default_list = base / f"{split}.json"
    if list_file is None and label_file is None and not default_list.exists():
        _refuse_missing_split(base, split)
        return read_folders(base)
    labels = Path(label_file or base / "labels.csv")
    return read_list(Path(list_file or default_list), labels, base, name=base.name)


def _refuse_missing_split(root: Path, split: str) -> None:
    """Refuse a list that was asked for by name, or that is lacking where there are others.

    The plain layout has no lists, so only the default split stands for all of its clips.
    """
    lists = sorted(p.name for p in root.glob("*.json") if not p.name.startswith("."))
    if split != "test" or (lists and (root / "labels.csv").exists()):
        found = f"the lists there are {', '.join(lists)}" if lists else "there is no list at all"
        raise DataError(f"no {split}.json in {root}: {found}; choose one with --split.")


def spec_of(dataset: str) -> Spec:
    """Return what is known of a published data set."""
    if dataset not in SPECS:
        raise OptionError(unknown_name("data set", dataset, SPECS))
    return SPECS[dataset]
