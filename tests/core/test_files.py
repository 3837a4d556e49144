import pytest

from dasp.core.files import atomic_path


def test_a_file_appears_whole(tmp_path):
    target = tmp_path / "new" / "file.txt"
    with atomic_path(target) as part:
        part.write_text("whole")
        assert not target.exists()
    assert target.read_text() == "whole"
    assert [path.name for path in target.parent.iterdir()] == ["file.txt"]


def test_a_failure_keeps_the_old_file_and_leaves_nothing(tmp_path):
    target = tmp_path / "file.txt"
    target.write_text("old")

    def fail():
        with atomic_path(target) as part:
            part.write_text("half")
            raise RuntimeError("full disk")

    with pytest.raises(RuntimeError, match="full disk"):
        fail()
    assert target.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["file.txt"]
