"""The ten commands of docs/serving.md, as they stand there but for the port."""

import os
import re
import shutil
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import dasp
from dasp.page.server import open_socket

ROOT = Path(__file__).parents[2]


@pytest.fixture
def shell(tmp_path):
    """Run a line of a shell in a directory of its own, where `dasp` and `python` are ours."""
    commands = tmp_path / "bin"
    commands.mkdir()
    for name, words in (("dasp", "-m dasp"), ("python", "")):
        (commands / name).write_text(f'#!/bin/sh\nexec {sys.executable} {words} "$@"\n')
        (commands / name).chmod(0o755)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    own = {"PATH": f"{commands}{os.pathsep}{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
    own["PYTHONPATH"] = os.pathsep.join(
        [str(Path(dasp.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    )
    environment, started = os.environ | own, []
    environment.pop("DASP_TOKEN", None)

    def run(line, background=False):
        out = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        process = subprocess.Popen(
            f"exec {line}" if background else line, shell=True, cwd=tmp_path, env=environment, **out
        )
        if background:
            started.append(process)
            return process.stdout.readline()
        said = process.communicate(timeout=600)[0]
        assert process.returncode == 0, (line, said)
        return said

    run.environment = environment
    yield run
    for process in started:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=240)


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_ten_commands_lead_to_a_served_and_watched_model(shell):
    text = (ROOT / "docs" / "serving.md").read_text()
    lines = re.search(r"```sh\n(.*?)```", text, re.DOTALL)[1].strip().splitlines()
    assert len(lines) == 10
    with open_socket("127.0.0.1", 0) as free:
        port = str(free.getsockname()[1])
    install, start, health, token, send, metrics, back, download, watch, again = (
        line.replace("8720", port) for line in lines
    )
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = re.search(r"dasp-tta\[(.*)\]", install)[1].split(",")
    assert set(names) <= set(extras["optional-dependencies"])
    assert "serving at" in shell(start, background=True)
    assert '"problem":null' in shell(health)
    name, _, value = token.removeprefix("export ").partition("=")
    shell.environment[name] = shell(f"echo {value}").strip()
    said = shell(send)
    assert said.count("right") == 9
    assert "dasp_batches_total 9.0" in shell(metrics)
    assert '"segment":0' in shell(back)
    assert shell(download) == ""
    assert "http://127.0.0.1" in shell(f"{watch} --no-browser", background=True)
    assert "9 batches of 9 requests" in shell(again)
