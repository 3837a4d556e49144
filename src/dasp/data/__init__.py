"""Clips from disk to tensors, and nothing made up on the way.

A *manifest* lists clips: READ's JSON lists (`read_list`), a folder a class (`read_folders`),
or whichever of them lies at a root (`open_manifest`). A `ClipDataset` turns its clips into
log-mel and frame tensors; a `Loader` makes batches of them with worker processes. A file that
is missing, cut off or of another format is an error that names it, or is left out and counted;
no constant ever stands in for it. `prepare_tree` makes such a tree from videos and
`check_tree` looks it over.
"""

from dasp.data.audio import fbank, log_mel
from dasp.data.check import CheckReport, check_tree
from dasp.data.dataset import ClipDataset, Sample
from dasp.data.folders import read_folders
from dasp.data.loader import Batch, Loader, Skipped
from dasp.data.manifest import Clip, Manifest
from dasp.data.prepare import PrepareReport, prepare_tree
from dasp.data.read_list import read_list
from dasp.data.sets import SPECS, open_manifest
from dasp.data.trees import premade

__all__ = [
    "SPECS",
    "Batch",
    "CheckReport",
    "Clip",
    "ClipDataset",
    "Loader",
    "Manifest",
    "PrepareReport",
    "Sample",
    "Skipped",
    "check_tree",
    "fbank",
    "log_mel",
    "open_manifest",
    "premade",
    "prepare_tree",
    "read_folders",
    "read_list",
]
