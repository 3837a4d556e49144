"""Files that are written: links, permissions, what killed processes leave, Ctrl-C."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import dasp
from dasp.core import files
from dasp.core.files import atomic_path, remove_parts
from dasp.models import Toy

ENVIRONMENT = os.environ | {"PYTHONPATH": str(Path(dasp.__file__).parents[1])}
WRITER = """
import sys, time
from dasp.core.files import atomic_path
with atomic_path(sys.argv[1]) as part:
    part.write_text("half")
    print("writing", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def writer(tmp_path):
    """Start a process that is in the middle of writing a file."""
    command = [sys.executable, "-c", WRITER, str(tmp_path / "file.txt")]
    with subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "writing\n"
        yield process
        process.kill()


def test_a_save_goes_through_a_link_and_keeps_permissions(tmp_path):
    kept, link = tmp_path / "disk" / "kept.safetensors", tmp_path / "state.safetensors"
    kept.parent.mkdir()
    kept.touch()
    kept.chmod(0o600)
    link.symlink_to(kept)
    tta = dasp.adapt(Toy(seed=1), "dasp")
    tta.save(link)
    tta.load(kept)
    assert link.is_symlink()
    assert kept.stat().st_mode & 0o777 == 0o600
    assert list(kept.parent.iterdir()) == [kept]
    other = tmp_path / "new.safetensors"
    (tmp_path / "plain").touch()
    tta.save(other)
    assert other.stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_parts_of_killed_processes_are_removed_and_those_of_live_ones_are_kept(tmp_path, writer):
    def hidden():
        return [path.name for path in tmp_path.glob(".*")]

    (tmp_path / ".notes.part.txt").touch()  # the user's own
    remove_parts(tmp_path)
    assert len(hidden()) == 2
    writer.kill()
    writer.wait()
    files._clean_once.cache_clear()  # as in the next process
    with atomic_path(tmp_path / "another.txt") as part:
        part.touch()
    assert hidden() == [".notes.part.txt"]
    remove_parts(tmp_path / "nothing")


def test_a_name_of_the_greatest_length_can_be_written(tmp_path):
    target = tmp_path / ("ä" * 125 + ".wav")
    with atomic_path(target) as part:
        part.touch()
    assert target.exists()


def test_ctrl_c_while_torch_loads_prints_no_traceback(tmp_path):
    """A library that swallows the exception, or makes another of it, changes nothing."""
    program = (
        "import os, signal, sys\n"
        "from dasp.cli import main\n"
        "def load(name):\n"
        "    try: os.kill(os.getpid(), signal.SIGINT)\n"
        "    except BaseException as error: raise ImportError('half a module') from error\n"
        "main.load, sys.argv[1:] = load, ['bench', 'quick']\n"
        "sys.exit(main.main())\n"
    )
    command = [sys.executable, "-c", program]
    ended = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (130, "interrupted\n")
