"""The plain layout for a user's own clips: a folder a class, a sound and a picture a clip.

    root/dog/rex.wav      root/dog/rex.jpg      (or .jpeg, .png)
    root/cat/tom.wav      root/cat/tom.png

Classes are numbered in the order of their sorted names; the id of a clip is "<class>/<clip>".
"""

from pathlib import Path

from dasp.core.errors import DataError
from dasp.data.manifest import Clip, Manifest, absolute

PICTURES = (".jpg", ".jpeg", ".png")


def read_folders(root: str | Path) -> Manifest:
    """List the clips `root/<class>/<clip>.wav` and `.jpg` in order; hidden files are not seen."""
    base = absolute(root)
    classes = tuple(
        sorted(p.name for p in base.iterdir() if p.is_dir() and not p.name.startswith("."))
    )
    clips = [clip for label, name in enumerate(classes) for clip in _class_clips(base, name, label)]
    if not clips:
        raise DataError(
            f"no clips in {base}: expected a list (test.json with labels.csv) or "
            "<class>/<clip>.wav with <class>/<clip>.jpg or .png beside it."
        )
    return Manifest(base.name, base, tuple(clips), classes)


def _class_clips(root: Path, name: str, label: int) -> list[Clip]:
    files = [p for p in sorted((root / name).iterdir()) if not p.name.startswith(".")]
    sounds = {p.stem: p for p in files if p.suffix.lower() == ".wav"}
    pictures: dict[str, Path] = {}
    for path in files:
        if path.suffix.lower() in PICTURES:
            if path.stem in pictures:
                raise DataError(f"{path}: {pictures[path.stem].name} is there too: keep one.")
            pictures[path.stem] = path
    for stem in sorted(sounds.keys() ^ pictures.keys()):
        alone = sounds.get(stem) or pictures[stem]
        lacking = "picture (.jpg, .jpeg, .png)" if stem in sounds else "sound (.wav)"
        raise DataError(f"{alone} has no {lacking} of the same name beside it: add it.")
    return [
        Clip(f"{name}/{stem}", label, sounds[stem], (pictures[stem],), root, root)
        for stem in sorted(sounds)
    ]
