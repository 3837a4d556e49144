"""Clips from disk as tensors.

A *manifest* lists clips: READ's JSON lists (`read_list`), one directory per class (`read_folders`),
or whichever of them is found (`open_manifest`). A `ClipDataset` turns its clips into log-mel and
frame tensors; a `Loader` makes batches of them with worker processes. A file that is missing,
truncated or in another format raises an error that names it, or is left out and counted; it is
never replaced by a constant. `prepare_tree` makes such a tree from videos, `check_tree` checks it.
"""

from dasp.data.check import CheckReport, check_tree
from dasp.data.clips import SPECS, Clip, Manifest, open_manifest, read_folders, read_list
from dasp.data.features import fbank, log_mel
from dasp.data.loading import ClipDataset, Loader, Sample, Skipped
from dasp.data.prepare import PrepareReport, prepare_tree

__all__ = [
    "SPECS", "CheckReport", "Clip", "ClipDataset", "Loader", "Manifest", "PrepareReport", "Sample",
    "Skipped", "check_tree", "fbank", "log_mel", "open_manifest", "prepare_tree", "read_folders",
    "read_list",
]  # fmt: skip
