import pytest

from dasp.cli import main


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
