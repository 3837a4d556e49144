import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import dasp
from dasp.cli import main
from dasp.streams import commands


def test_help_teaches(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["--help"])
    assert stop.value.code == 0
    assert "Run methods on streams" in capsys.readouterr().out


def test_check_names_the_nearest_method(capsys):
    assert main(["check", "dsap"]) == 2
    assert "did you mean 'dasp'" in capsys.readouterr().err
    assert main(["check", "source"]) == 0


def test_data_commands_stand_under_data(capsys):
    with pytest.raises(SystemExit):
        main(["data", "check", "--help"])
    assert "Look at every file of a data set" in capsys.readouterr().out


def test_an_error_of_the_users_is_one_line_and_exit_code_2(capsys, tmp_path):
    assert main(["data", "check", str(tmp_path / "none")]) == 2
    assert "none" in capsys.readouterr().err


def test_an_error_line_is_never_wrapped(capsys, tmp_path):
    name = "a folder that is not there " * 6
    assert main(["data", "check", str(tmp_path / name)]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert error.count("\n") == 1


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a place nobody can write to")
def test_a_place_that_cannot_be_written_is_one_line(capsys, tmp_path, media):
    media.write_video(tmp_path / "mp4" / "cat" / "a.mp4", 0.6)
    pets = media.write_folders(tmp_path / "pets")
    (tmp_path / "file").touch()
    few = ["--corruptions", "rain", "--modality", "audio"]
    for words in (
        ["prepare", tmp_path / "mp4", tmp_path / "file"],
        ["prepare", tmp_path / "mp4", "/proc/x"],
        ["preview", pets, "--out", "/proc/x"],
        ["corrupt", pets, *few, "--out", "/proc/x"],
        ["corrupt", pets, *few, "--out", tmp_path / "file"],
        ["data", "checksum", pets, *few, "--save", "/proc/x/hashes.json"],
    ):
        assert main([str(word) for word in words]) == 2
        captured = capsys.readouterr()
        assert captured.out == ""
        assert re.fullmatch(r"error: .*(/proc/x|file).*: .*\n", captured.err)


def test_a_full_disk_is_one_line(capsys, monkeypatch, tmp_path, media):
    def full(*_):
        raise OSError(28, "No space left on device", str(tmp_path / "preview-frames.png"))

    monkeypatch.setattr(commands, "save_sheets", full)
    pets = media.write_folders(tmp_path / "pets")
    assert main(["preview", str(pets), "--out", str(tmp_path)]) == 2
    expected = f"error: {tmp_path / 'preview-frames.png'}: No space left on device\n"
    assert capsys.readouterr().err == expected


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["check", "dasp"], "interrupted\n"),
        (["data", "check", "x"], "interrupted\n"),
        (["corrupt", "x"], "interrupted; what was finished is kept\n"),
    ],
)
def test_an_interruption_promises_only_what_is_so(capsys, monkeypatch, words, said):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("tyro.extras.subcommand_cli_from_dict", interrupted)
    assert main(words) == 130
    assert capsys.readouterr().err == said


def test_an_interruption_while_the_rooms_load_or_after_the_end_is_quiet(tmp_path):
    program = (
        "import os, signal, sys, dasp.cli\n"
        # A run in the background inherits that Ctrl-C is ignored.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "def interrupt(*_):\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    return {}\n"
        "if sys.argv.pop(1) == 'early':\n"
        "    dasp.cli._commands = interrupt\n"
        "code = dasp.cli.main()\n"
        "interrupt()\n"
        "sys.exit(code)\n"
    )
    place = os.pathsep.join([str(Path(dasp.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    for when, words, code, said in (
        ("early", ["check"], 130, "interrupted\n"),
        ("late", ["--version"], 0, ""),
    ):
        done = subprocess.run(
            [sys.executable, "-c", program, when, *words],
            env=os.environ | {"PYTHONPATH": place},
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stderr) == (code, said)


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["prepare", "--help"], "SOURCE ROOT"),
        (["data", "check", "--help"], "ROOT"),
        (["check", "--help"], "METHOD"),
        (["data", "--help"], "Look over a data set: whether its files are whole"),
        (["--help"], "dasp --version"),
    ],
)
def test_help_names_what_is_given(capsys, words, shown):
    with pytest.raises(SystemExit):
        main(words)
    assert shown in "\n".join(capsys.readouterr().out.splitlines()[:4])


def test_the_version_is_told(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"dasp {dasp.__version__}\n"
