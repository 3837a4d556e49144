"""kill -9 at random moments: the run goes on from its checkpoint as if nothing had happened."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("lives.py")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="lives are forked")
@pytest.mark.parametrize("method", ["tsa", "triage"])
def test_a_run_killed_again_and_again_gives_what_an_unbroken_one_does(tmp_path, method):
    command = [sys.executable, str(PROGRAM), str(tmp_path), method, "0", "1"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert [line.split(",")[0] for line in run.stdout.splitlines()] == ["7 deaths"] * 2
