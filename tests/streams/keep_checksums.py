"""Write the kept checksums anew, after data were changed on purpose: run this file."""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from dasp.data import open_manifest
from dasp.streams import all_domains, checksums
from dasp.streams.checksum import BUILT_IN, save_checksums, shapes_checksums

HERE = Path(__file__).parent

if __name__ == "__main__":
    sys.path.insert(0, str(HERE.parent))
    import media_files

    with TemporaryDirectory() as folder:
        pets = media_files.write_folders(Path(folder) / "pets")
        save_checksums(
            HERE / "checksums.json", checksums(open_manifest(pets), all_domains(), count=1)
        )
    save_checksums(BUILT_IN, shapes_checksums(show=True))
