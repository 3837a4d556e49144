"""Run a plan of kind "streams": every method through every protocol on every model."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from dasp.bench.cell import Tick, batches_of, run_cell
from dasp.bench.engines.local import LOCAL
from dasp.bench.features import Features, Part, parts_of
from dasp.bench.plan import Plan
from dasp.bench.prepare import Place
from dasp.bench.references import find_method, model_name
from dasp.bench.results import Cell
from dasp.bench.work import Engine, Item, Outcome, Work, run_work
from dasp.streams.visits import CLEAN


class Streams(Work):
    """Runs cells, one an item."""

    on_gpu = True

    def name(self, item: Item) -> str:
        """Return the stream, the row and the model."""
        cell = _cell(item)
        return f"{cell.protocol} {cell.label} {cell.model['name']}"

    def steps(self, item: Item) -> int:
        """Return the batches of its stream."""
        cell = _cell(item)
        return batches_of(cell, cell.data["samples"])

    def parts(self, item: Item, modalities: Sequence[str]) -> set[Part]:
        """Return what its stream shows: tokens, or raw inputs where the encoder is tuned."""
        cell = _cell(item)
        encoded = not find_method(cell.method).tunes_encoder
        conditions = {condition for visit in cell.visits() for condition in visit.conditions}
        conditions |= {CLEAN} if cell.clean_after else set()
        return parts_of(conditions, modalities, encoded, cell.tokens)

    def outcomes(self, item: Item, features: Features, tick: Tick) -> Iterable[Outcome]:
        """Run the cell."""
        cell = _cell(item)
        result, measured = run_cell(cell, find_method(cell.method), features, tick)
        if features.device.type != "cpu":
            measured["machine"]["device"] = features.device.type
        yield result, measured


def run_plan(plan: Plan, place: Place, show: bool = True, engine: Engine = LOCAL) -> list[Path]:
    """Run what is not done yet; return the result files of all cells of the plan.

    Safe to interrupt and to run twice at once on one folder: a cell is run by one process.
    """
    references = {model_name(model): model for model in plan.models}
    items = [Item(references[cell.model["name"]], (cell,)) for cell in plan.cells()]
    return run_work(Streams(plan.data), items, place, engine, show)


def _cell(item: Item) -> Cell:
    (cell,) = item.wanted
    assert isinstance(cell, Cell)
    return cell
