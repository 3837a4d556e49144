"""The files of deploy/ fit to what is served: metrics, paths, flags and files."""

import json
import re
import shlex
from pathlib import Path

import pytest

from dasp.cli import main as cli

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"


def test_every_figure_of_the_dashboard_is_served(online, stream):
    client = online()
    client(stream(1)[0])
    served = set(re.findall(r"^(dasp_\w+)", client.metrics(), re.MULTILINE))
    panels = json.loads((DEPLOY / "grafana/dashboards/dasp.json").read_text())["panels"]
    asked = {
        name
        for panel in panels
        for target in panel["targets"]
        for name in re.findall(r"dasp_\w+", target["expr"])
    }
    assert len(panels) == 9
    assert asked <= served


@pytest.mark.parametrize("name", ["Dockerfile", "Dockerfile.cuda"])
def test_an_image_copies_files_that_exist_and_starts_a_command_that_parses(name, monkeypatch):
    text = (DEPLOY / name).read_text().replace("\\\n", " ")
    for line in re.findall(r"^COPY (.*) \S+$", text, re.MULTILINE):
        allowed = (ROOT / ".dockerignore").read_text()
        assert all((ROOT / one).exists() and f"!{one}" in allowed for one in shlex.split(line))
    entry, words = (json.loads(re.search(rf"^{key} (\[.*\])", text, re.MULTILINE)[1])
                    for key in ("ENTRYPOINT", "CMD"))  # fmt: skip
    started = {}
    monkeypatch.setattr("dasp.cli.serve._keep_settings", lambda *_: None)
    monkeypatch.setattr("dasp.cli.serve.build", lambda options, log: (options.model, log))
    monkeypatch.setattr("dasp.serve.serve", lambda *told, **more: started.update(more, told=told))
    assert cli.main([*entry[1:], *words]) == 0
    assert started["host"] == "0.0.0.0"
    assert started["told"][0][0] == "sounding_shapes_0"
