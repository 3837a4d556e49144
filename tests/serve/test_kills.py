import os
import subprocess
import sys
from pathlib import Path

import dasp


def test_a_worker_killed_at_any_moment_says_what_one_that_lives_would(tmp_path):
    source = str(Path(dasp.__file__).parents[1])
    environment = os.environ | {"PYTHONPATH": source, "OMP_NUM_THREADS": "1"}
    words = [sys.executable, str(Path(__file__).with_name("kills.py")), str(tmp_path), "1", "8"]
    said = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stderr
    assert "bit for bit" in said.stdout
