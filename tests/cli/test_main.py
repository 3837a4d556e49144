import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import dasp
from dasp.cli import main as cli
from dasp.cli.main import COMMANDS, load, main

PLACES = [str(Path(dasp.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
ENVIRONMENT = os.environ | {"PYTHONPATH": os.pathsep.join(PLACES), "OMP_NUM_THREADS": "1"}


@pytest.mark.parametrize("words", ["", "--help", "-h", "data", "data --help"])
def test_without_a_command_those_there_are_are_listed(capsys, words):
    assert main(words.split()) == 0
    shown = [
        line[2:16].strip() for line in capsys.readouterr().out.splitlines() if line[:2] == "  "
    ]
    assert shown == [name for name in COMMANDS if name.startswith("data") or "data" not in words]


@pytest.mark.parametrize(
    ("words", "right"), [("monitr", "monitor"), ("data chek", "data check"), ("dta check", "data")]
)
def test_a_misspelt_command_gets_a_suggestion(capsys, words, right):
    assert main(words.split()) == 2
    assert f"did you mean '{right}'?" in capsys.readouterr().err


def test_every_command_can_be_imported():
    assert all(load(name).__doc__ for name in COMMANDS)


def test_help_imports_nothing_heavy_and_a_model_is_adapted_without_pillow():
    program = (
        "import sys\n"
        "from dasp.cli.main import main\n"
        "assert main(['--help']) == 0 and not {'torch', 'numpy', 'tyro'} & set(sys.modules)\n"
        "sys.modules['PIL'] = None\n"  # as if it were not installed
        "import dasp, dasp.corruptions, dasp.streams, numpy\n"
        "tta = dasp.adapt(dasp.models.Toy(), 'dasp')\n"
        "from dasp.streams.synthetic import SyntheticWorld\n"
        "tta(SyntheticWorld().draw(4, 0).inputs)\n"
        "dasp.check_method('source')\n"
        "image = numpy.zeros((8, 8, 3), numpy.uint8)\n"
        "dasp.corruptions.corrupt_frame(image, 'gaussian_noise', 1)\n"
        "try: dasp.corruptions.corrupt_frame(image, 'contrast', 1)\n"
        "except dasp.DaspError as error: assert \"'dasp-tta[media]'\" in str(error)\n"
        "else: raise AssertionError\n"
    )
    subprocess.run([sys.executable, "-c", program], env=ENVIRONMENT, check=True)


def test_check_names_the_nearest_method(capsys):
    assert main(["check", "dsap"]) == 2
    assert "did you mean 'dasp'" in capsys.readouterr().err
    assert main(["check", "source"]) == 0


def test_an_error_of_the_user_is_one_line_that_is_never_wrapped(capsys, tmp_path):
    name = "a folder that is not there " * 6
    assert main(["data", "check", str(tmp_path / name)]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert name in error
    assert error.count("\n") == 1


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a place nobody can write to")
def test_a_place_that_cannot_be_written_is_one_line_before_work_begins(
    capsys, monkeypatch, tmp_path, media
):
    def worked(*_, **__):
        raise AssertionError("the work was begun")

    monkeypatch.setattr("dasp.streams.preview.draw_sheets", worked)
    media.write_video(tmp_path / "mp4" / "cat" / "a.mp4", 0.6)
    pets = media.write_folders(tmp_path / "pets")
    (tmp_path / "file").touch()
    for words in (
        f"prepare {tmp_path}/mp4 {tmp_path}/file",
        f"prepare {tmp_path}/mp4 /proc/x",
        f"preview {pets} --out /proc/x",
        f"preview {pets} --out {tmp_path}/file/deeper",
    ):
        assert main(words.split()) == 2
        captured = capsys.readouterr()
        assert captured.out == ""
        assert re.fullmatch(r"error: .*(/proc/x|file|pets).*: .*\n", captured.err)


def test_a_list_of_plans_is_refused_before_its_first_plan_runs(capsys, monkeypatch, tmp_path):
    def worked(*_, **__):
        raise AssertionError("the work was begun")

    monkeypatch.setattr("dasp.cli.bench.run_plan", worked)
    plan = 'models = ["sounding_shapes_0"]\nprotocols = ["clean"]\n[data]\nsamples = 8\n[methods]\n'
    (tmp_path / "first.toml").write_text(plan + "source = {}\n")
    (tmp_path / "second.toml").write_text(plan + "dasp = { stable_rank = -1 }\n")
    (tmp_path / "both.toml").write_text('plans = ["first.toml", "second.toml"]\n')
    assert main(["bench", str(tmp_path / "both.toml"), "--results", str(tmp_path / "out")]) == 2
    assert "stable_rank must be" in capsys.readouterr().err


def test_a_plan_of_a_list_without_the_methods_asked_for_is_left_out(capsys, tmp_path):
    plan = 'models = ["sounding_shapes_0"]\nprotocols = ["clean"]\n[data]\nsamples = 8\n[methods]\n'
    (tmp_path / "first.toml").write_text(plan + "source = {}\n")
    (tmp_path / "second.toml").write_text(plan + "source = {}\ndasp = {}\n")
    (tmp_path / "both.toml").write_text('plans = ["first.toml", "second.toml"]\n')
    words = ["bench", str(tmp_path / "both.toml"), "--results", str(tmp_path / "out"), "--dry-run"]
    assert main([*words, "--methods", "dasp"]) == 0
    said = capsys.readouterr().out
    assert "1 runs, 0 done already: dasp on clean" in said
    assert "0 runs" not in said
    assert main([*words, "--methods", "tent"]) == 2  # no plan has it
    assert "nothing to run" in capsys.readouterr().err


def test_a_full_disk_is_one_line(capsys, monkeypatch, tmp_path, media):
    def full(*_):
        raise OSError(28, "No space left on device", str(tmp_path / "preview-frames.png"))

    monkeypatch.setattr("dasp.streams.preview.save_sheets", full)
    pets = media.write_folders(tmp_path / "pets")
    assert main(["preview", str(pets), "--out", str(tmp_path)]) == 2
    expected = f"error: {tmp_path / 'preview-frames.png'}: No space left on device\n"
    assert capsys.readouterr().err == expected


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["check", "dasp"], "interrupted\n"),
        (["data", "check", "x"], "interrupted\n"),
        (["prepare", "x"], "interrupted; finished work is kept\n"),
    ],
)
def test_an_interruption_promises_only_what_is_so(capsys, monkeypatch, words, said):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "load", interrupted)
    assert main(words) == 130
    assert capsys.readouterr().err == said


@pytest.mark.parametrize(
    ("word", "code", "said"), [("check", 130, "interrupted\n"), ("--version", 0, "")]
)
def test_an_interruption_while_a_command_loads_or_after_the_end_is_quiet(word, code, said):
    program = (
        "import os, signal, sys\n"
        "from dasp.cli import main as cli\n"
        # A run in the background inherits that Ctrl-C is ignored.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "cli.load = interrupt = lambda *_: os.kill(os.getpid(), signal.SIGINT)\n"
        "code = cli.main()\n"
        "interrupt()\n"
        "sys.exit(code)\n"
    )
    command = [sys.executable, "-c", program, word]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (code, said)


@pytest.mark.parametrize(
    ("words", "shown"),
    [("prepare", "SOURCE ROOT"), ("data check", "ROOT"), ("check", "METHOD"), ("monitor", "LOG")],
)
def test_help_names_what_is_given(capsys, words, shown):
    with pytest.raises(SystemExit):
        main([*words.split(), "--help"])
    assert shown in "\n".join(capsys.readouterr().out.splitlines()[:4])


def test_the_version_is_told(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"dasp {dasp.__version__}\n"
