import json
import os

import pytest
import soundfile

from dasp.core.errors import DataError, OptionError
from dasp.data import SPECS, check_tree, open_manifest, prepare_tree
from dasp.data.clips import write_labels, write_list


@pytest.fixture
def videos(tmp_path, media):
    for number, name in enumerate(("cat/a", "cat/b", "dog/c")):
        media.write_video(tmp_path / "mp4" / f"{name}.mp4", 0.6, 300 + 100 * number)
    return tmp_path / "mp4"


def files(root):
    return {p.relative_to(root): p.read_bytes() for p in root.rglob("*") if p.is_file()}


def test_videos_become_a_tree_that_checks_out(tmp_path, videos):
    report = prepare_tree(videos, tmp_path / "set")
    assert (report.made, report.kept, report.failed) == (3, 0, [])
    manifest = open_manifest(tmp_path / "set")
    found = [(c.id, manifest.classes[c.label]) for c in manifest.clips]
    assert found == [("a", "cat"), ("b", "cat"), ("c", "dog")]
    checked = check_tree(manifest)
    assert checked.ok
    assert checked.sample_rates == {"16000 Hz x1": 3}
    assert checked.frame_sizes == {"96x72": 30}
    assert soundfile.info(tmp_path / "set/audio/a.wav").subtype == "PCM_16"


def test_an_interrupted_run_goes_on_and_ends_the_same(tmp_path, videos):
    root = tmp_path / "set"
    prepare_tree(videos, root, workers=0)
    whole = files(root)
    (root / "audio" / "b.wav").unlink()
    (root / "video" / "frame_7" / "c.jpg").unlink()
    (root / "test.json").unlink()
    report = prepare_tree(videos, root, workers=2)
    assert (report.made, report.kept) == (2, 1)
    assert files(root) == whole


def test_a_cut_off_video_is_reported_and_left_off_the_list(tmp_path, videos):
    bad = videos / "cat" / "b.mp4"
    bad.write_bytes(bad.read_bytes()[:3000])
    report = prepare_tree(videos, tmp_path / "set")
    assert [path for path, _ in report.failed] == [str(bad)]
    assert "b.mp4 is truncated" in report.failed[0][1]
    assert [c.id for c in open_manifest(tmp_path / "set").clips] == ["a", "c"]


def test_a_list_of_read_chooses_and_labels_the_videos(tmp_path, videos):
    def entry(name, label):
        return {"video_id": name, "wav": "/x", "video_path": "/y", "labels": label}

    write_list(
        tmp_path / "refer.json", [entry("c", "loud"), entry("gone", "calm"), entry("a", "calm")]
    )
    write_labels(tmp_path / "names.csv", ["calm", "loud"])
    report = prepare_tree(videos, tmp_path / "set", tmp_path / "refer.json", tmp_path / "names.csv")
    assert report.failed == [("gone", "no gone.mp4 among the videos")]
    assert [(c.id, c.label) for c in open_manifest(tmp_path / "set").clips] == [("c", 1), ("a", 0)]
    write_list(tmp_path / "refer.json", [entry("c", "noisy")])
    with pytest.raises(DataError, match=r"refer\.json, entry 0 \('c'\): unknown label 'noisy'"):
        prepare_tree(videos, tmp_path / "set", tmp_path / "refer.json", tmp_path / "names.csv")


def test_what_cannot_be_prepared_is_named(tmp_path, videos, media):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(DataError, match=r"cannot write to .*file: it is not a directory"):
        prepare_tree(videos, tmp_path / "file")
    assert (tmp_path / "file").read_text() == "mine"
    with pytest.raises(OptionError, match=r"workers must be 0 .* or more, not -1"):
        prepare_tree(videos, tmp_path / "set", workers=-1)
    assert not (tmp_path / "set").exists()
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="no videos in"):
        prepare_tree(tmp_path / "empty", tmp_path / "set")
    with pytest.raises(DataError, match=r"nowhere is not a directory"):
        prepare_tree(tmp_path / "nowhere", tmp_path / "set")
    with pytest.raises(DataError, match=r"refer\.json also needs .*--labels"):
        prepare_tree(videos, tmp_path / "set", tmp_path / "refer.json")
    write_labels(tmp_path / "names.csv", ["calm"])
    with pytest.raises(DataError, match=r"cannot read the list .*nope\.json: No such file"):
        prepare_tree(videos, tmp_path / "set", tmp_path / "nope.json", tmp_path / "names.csv")
    with pytest.raises(
        DataError, match=r"cannot read the labels .*no\.csv: No such file"
    ) as refusal:
        prepare_tree(videos, tmp_path / "set", tmp_path / "refer.json", tmp_path / "no.csv")
    assert str(refusal.value).count("no.csv") == 1
    media.write_video(videos / "dog" / "a.mp4")
    with pytest.raises(DataError, match=r"duplicated id 'a': .*cat/a\.mp4 and .*dog/a\.mp4"):
        prepare_tree(videos, tmp_path / "set")


@pytest.mark.parametrize("place", [".", "set", "cat/../deep/set"])
def test_nothing_is_written_among_the_videos(videos, place):
    before = files(videos)
    with pytest.raises(DataError, match="choose a root outside"):
        prepare_tree(videos, videos / place)
    assert files(videos) == before


def test_videos_that_are_links_or_not_utf8_are_refused_by_name(tmp_path, videos):
    (videos / "cat" / "a.mp4").replace(tmp_path / "a.mp4")
    (videos / "cat" / "a.mp4").symlink_to(tmp_path / "a.mp4")
    with pytest.raises(DataError, match=r"cat/a\.mp4 is a link to .*--follow-links"):
        prepare_tree(videos, tmp_path / "set")
    assert prepare_tree(videos, tmp_path / "set", workers=0, follow_links=True).made == 3
    os.rename(videos / "cat", os.fsencode(videos) + b"/caf\xe9")  # noqa: PTH104
    with pytest.raises(DataError, match=r"b'caf\\xe9', whose name is not UTF-8"):
        prepare_tree(videos, tmp_path / "new")


@pytest.mark.parametrize("seconds", [1, -1])
def test_a_clip_is_made_again_if_its_video_was_replaced(tmp_path, videos, media, seconds):
    root = tmp_path / "set"
    prepare_tree(videos, root, workers=0)
    before = files(root)
    media.write_video(videos / "cat" / "b.mp4", 0.8, 900)
    made = (root / "audio" / "b.wav").stat().st_mtime + seconds
    os.utime(videos / "cat" / "b.mp4", (made, made))
    report = prepare_tree(videos, root, workers=0)
    assert (report.made, report.remade, report.kept) == (1, 1, 2)
    assert {p.stem for p, content in files(root).items() if content != before[p]} == {"b"}


def test_videos_outside_a_class_folder_are_told(tmp_path, videos, media):
    media.write_video(videos / "top.mp4")
    media.write_video(videos / "cat" / "more" / "deep.mp4")
    report = prepare_tree(videos, tmp_path / "set", workers=0)
    assert report.made == 3
    assert report.unused == (str(videos / "cat/more/deep.mp4"), str(videos / "top.mp4"))


def test_check_lists_everything_that_is_wrong(tmp_path, videos, media):
    root = tmp_path / "set"
    prepare_tree(videos, root)
    (root / "audio" / "a.wav").unlink()
    soundfile.write(root / "audio" / "b.wav", media.tone(1, 440, 44100), 44100)
    (root / "video" / "frame_3" / "c.jpg").write_bytes(b"")
    report = check_tree(open_manifest(root), workers=2)
    bad = ["audio/a.wav", "audio/b.wav", "video/frame_3/c.jpg"]
    assert [path for path, _ in report.problems] == [str(root / name) for name in bad]
    assert not report.ok
    assert report.sample_rates == {"16000 Hz x1": 1, "44100 Hz x1": 1}
    lines = list(report.lines())
    assert "problems    3" in lines
    assert [line.count(name) for line, name in zip(lines[-3:], bad, strict=True)] == [1, 1, 1]


def test_check_compares_published_counts_and_finds_empty_classes(tmp_path, videos):
    root = tmp_path / "set"
    prepare_tree(videos, root)
    entries = json.loads((root / "test.json").read_text())["data"]
    write_list(root / "test.json", entries[:2])
    report = check_tree(open_manifest(root), SPECS["kinetics50"], workers=0)
    assert [reason for _, reason in report.problems] == [
        "2 clips of 2 classes, but 2466 clips of 50 classes are published",
        "this class has no clips",
    ]
