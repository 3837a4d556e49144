"""Write checksums.json anew, after a corruption was changed on purpose: run this file."""

import json
import platform
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from dasp.data import open_manifest
from dasp.streams import all_domains, checksums

HERE = Path(__file__).parent

if __name__ == "__main__":
    sys.path.insert(0, str(HERE.parent))
    import media_files

    with TemporaryDirectory() as folder:
        pets = media_files.write_folders(Path(folder) / "pets")
        hashes = checksums(open_manifest(pets), all_domains(), count=1)
    kept = {"machine": platform.machine(), "hashes": hashes}
    (HERE / "checksums.json").write_text(json.dumps(kept, indent=1) + "\n")
