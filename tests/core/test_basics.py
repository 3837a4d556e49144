"""Files, registries and seeds."""

from itertools import pairwise

import pytest

from dasp.core.errors import OptionError, unknown_name
from dasp.core.files import atomic_path
from dasp.core.progress import with_bar
from dasp.core.registry import Registry
from dasp.core.seeding import batch_seed, numpy_generator


def test_a_file_appears_whole_and_readable_to_others(tmp_path):
    target, plain = tmp_path / "new" / "file.txt", tmp_path / "plain"
    with atomic_path(target) as part:
        part.write_text("whole")
        assert not target.exists()
    plain.touch()
    assert target.read_text() == "whole"
    assert target.stat().st_mode == plain.stat().st_mode
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


def test_a_name_is_taken_once_and_an_unknown_one_gives_the_nearest():
    registry = Registry("method")
    registry.register("dasp")(1)
    with pytest.raises(OptionError, match="registered already"):
        registry.register("dasp")(2)
    assert (registry["dasp"], len(registry), "dasp" in registry) == (1, 1, True)
    with pytest.raises(OptionError, match="unknown method 'dsap': did you mean 'dasp'"):
        registry["dsap"]
    assert unknown_name("model", "zzz", ["a"]) == "unknown model 'zzz': There are: a."


def test_a_draw_depends_on_every_part_of_the_purpose_and_on_nothing_else():
    keys = [(0, "a", "b"), (1, "a", "b"), (0, "ab", ""), (0, "a", "c"), (0, "b", "a")]
    draws = [[numpy_generator(*key).integers(2**62) for key in keys] for _ in range(2)]
    assert draws[0] == draws[1]
    assert len(set(draws[0])) == len(keys)


def test_streams_of_a_hundred_seeds_do_not_meet_within_ten_million_batches():
    assert [batch_seed(0, index) for index in (0, 7, 2**31)] == [0, 7, 2**31]
    starts = sorted(batch_seed(seed, 0) for seed in range(100))
    assert min(b - a for a, b in pairwise(starts)) > 10**7
    assert 0 <= batch_seed(2**31 - 1, 2**31) < 2**32


@pytest.mark.parametrize("seed", [-1, 2**31, 1.5, "0"])
def test_a_bad_seed_is_refused(seed):
    with pytest.raises(OptionError, match="seed must be"):
        numpy_generator(seed, "a")


def test_a_purpose_that_is_not_text_is_refused():
    with pytest.raises(OptionError, match=r"consists of strings, not 17: use str\(17\)"):
        numpy_generator(0, "video/fog/3", 17)


def test_without_a_terminal_lines_tell_how_far_a_job_is(capsys, monkeypatch):
    monkeypatch.setattr("dasp.core.progress.LINE_EVERY", -1)
    assert list(with_bar(iter("ab"), 2, "run", show=True)) == ["a", "b"]
    told = capsys.readouterr().err
    assert "run: 1 of 2 done\nrun: 2 of 2 done\n" in told
    assert list(with_bar(iter("ab"), 2, "run", show=False)) == ["a", "b"]
    assert not capsys.readouterr().err
