"""Write the kept checksums anew, after data were changed on purpose: run this file."""

import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from dasp.data import open_manifest
from dasp.streams import DomainDamage, all_domains, checksums
from dasp.streams.checksum import BUILT_IN, shapes_checksums

HERE = Path(__file__).parent

if __name__ == "__main__":
    sys.path.insert(0, str(HERE.parent))
    import media_files

    with TemporaryDirectory() as folder:
        pets = open_manifest(media_files.write_folders(Path(folder) / "pets"))
        hashes = checksums(pets, [DomainDamage(domain) for domain in all_domains()], count=1)
    (HERE / "checksums.json").write_text(json.dumps(hashes, indent=1) + "\n")
    BUILT_IN.write_text(json.dumps(shapes_checksums(show=True), indent=1) + "\n")
