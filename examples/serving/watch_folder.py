"""Send every batch that appears in a directory to `dasp serve`, and write the answer beside it.

    python examples/serving/watch_folder.py http://127.0.0.1:8720 DIRECTORY

A batch is a file NAME.safetensors with one tensor (B, ...) per modality; move it there when it is
complete. Its answer is NAME.json. Kill it and start it again at any time: a file has an id made of
its content, so that the server learns from it once, and a file that has its answer is not sent.
"""

import hashlib
import json
import sys
import time
from pathlib import Path

from safetensors.torch import load

from dasp.client import Client, ServerError
from dasp.core.files import atomic_path


def answer(client: Client, path: Path) -> dict:
    """Return the answer to one file; what is wrong with it is an answer, too."""
    data = path.read_bytes()
    try:
        name = hashlib.sha256(path.name.encode() + data).hexdigest()
        out = client(load(data), request_id=name)
    except ServerError:
        raise  # the server's fault: end here, and send the file again at the next start
    except Exception as error:
        return {"error": str(error)}
    biased = sorted(out.diagnosis.biased) if out.diagnosis else []
    return {"predictions": out.logits.argmax(1).tolist(), "biased": biased}


def main(url: str, folder: str, pause: float = 0.5) -> None:
    """Answer files in the order of their names, as they come, until Ctrl-C."""
    with Client(url) as client:
        while True:
            for path in sorted(Path(folder).glob("*.safetensors")):
                if not path.with_suffix(".json").exists():
                    said = answer(client, path)
                    with atomic_path(path.with_suffix(".json")) as part:
                        part.write_text(json.dumps(said))
                    print(path.name, said, flush=True)
            time.sleep(pause)


if __name__ == "__main__":
    main(*sys.argv[1:3])
