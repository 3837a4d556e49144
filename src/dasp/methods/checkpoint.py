"""A state written every so many batches, from which a killed run goes on."""

from collections.abc import Callable
from pathlib import Path

from dasp.core.errors import OptionError
from dasp.core.files import remove_parts
from dasp.methods import saved
from dasp.methods.base import whole
from dasp.service.recorder import Recorder


class Checkpoint:
    """Where and how often a state is written. A file that is there is replaced, or resumed from."""

    def __init__(self, path: str | Path, every: int, writes: bool = True) -> None:
        """Write every so many batches; or, on all ranks but one, only `resume` from the file."""
        whole(checkpoint_every=every)
        self.path, self.every, self.writes = Path(path), every, writes
        if self.path.is_dir():
            raise OptionError(f"checkpoint={str(path)!r} is a folder: give the path of a file.")
        if writes:
            remove_parts(self.path)
        self._written_at = 0

    def start_from(self, batches: int) -> int:
        """Count on from a number of batches, and return it."""
        self._written_at = batches
        return batches

    def after_batch(self, recorder: Recorder, state: Callable[[], saved.State]) -> None:
        """Write the state if it is due. If that fails the old file stays, and the run goes on."""
        batches = recorder.counters.totals["batches"]
        if not self.writes or batches - self._written_at < self.every:
            return
        self._written_at = batches
        recorder.to_disk()  # first the log, so that it has every batch that the state knows
        what = f"the checkpoint {self.path}"
        if recorder.guarded(lambda: saved.write(self.path, state()), what):
            recorder.event("save", count="saves", path=self.path)
