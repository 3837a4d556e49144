"""Pieces of the page: lists, tables, figures, folded parts."""

from collections.abc import Iterable
from html import escape

from dasp.report.figures import Figure
from dasp.report.parts import Item, Part
from dasp.report.render import to_html


def bullets(entries: Iterable[str]) -> str:
    """Return a list of entries that are HTML already."""
    return f"<ul>{''.join(f'<li>{entry}</li>' for entry in entries)}</ul>"


def notes_html(notes: Iterable[str]) -> str:
    """Return what a reader should know first, empty if there is nothing."""
    entries = [escape(note) for note in notes]
    return f'<div class="warn"><p>Please note:</p>{bullets(entries)}</div>' if entries else ""


def part_html(part: Part) -> str:
    """Return a part with its heading, folded where it asks for it."""
    body = "\n".join(item_html(item) for item in part.items)
    if part.folded:
        return f"<details><summary>{escape(part.title)}</summary>\n{body}</details>"
    return f"<h3>{escape(part.title)}</h3>\n{body}"


def item_html(item: Item) -> str:
    """Return a table or a figure, which scrolls sideways on a small screen."""
    if not isinstance(item, Figure):
        return to_html(item)
    return (
        f'<figure><div class="scroll">{item.drawing}</div>'
        f"<figcaption>{escape(item.caption)}</figcaption></figure>"
    )
