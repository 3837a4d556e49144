import json
import os
import shutil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dasp.core.errors import DataError, OptionError
from dasp.data import SPECS, open_manifest, read_folders
from dasp.data.clips import inside, read_labels, write_labels


def write_set(root, entries, labels=("cat", "dog")):
    root.mkdir(parents=True, exist_ok=True)
    write_labels(root / "labels.csv", labels)
    (root / "test.json").write_text(json.dumps({"data": entries}))
    return root


def entry(name="a", label="cat", **changes):
    paths = {"wav": f"audio/{name}.wav", "video_path": "video/"}
    return {"video_id": name, "labels": label} | paths | changes


def test_a_list_of_read_is_understood(tmp_path):
    root = write_set(tmp_path / "set", [entry("a", "dog"), entry("b", "cat")])
    manifest = open_manifest(root)
    first = manifest.clips[0]
    assert [(c.id, c.label) for c in manifest.clips] == [("a", 1), ("b", 0)]
    assert first.wav == root / "audio" / "a.wav"
    assert first.frames[5] == root / "video" / "frame_5" / "a.jpg"
    assert len(first.frames) == 10
    assert first.frame == first.frames[5]
    assert first.frame_id == "a/frame_5"
    assert manifest.per_class() == {"cat": 1, "dog": 1}


def test_absolute_paths_inside_the_root_are_the_same_data(tmp_path):
    relative = open_manifest(write_set(tmp_path / "one", [entry()]))
    root = tmp_path / "two"
    changes = {"wav": str(root / "audio/a.wav"), "video_path": str(root / "video")}
    absolute = open_manifest(write_set(root, [entry(**changes)]))
    assert absolute.digest == relative.digest


@pytest.mark.parametrize(
    "other", [[entry("b")], [entry(label="dog")], [entry(wav="x/a.wav")], [entry(), entry("b")]]
)
def test_the_digest_tells_contents_apart(tmp_path, other):
    ours = open_manifest(write_set(tmp_path / "one", [entry()]))
    assert ours.digest != open_manifest(write_set(tmp_path / "two", other)).digest


@pytest.mark.parametrize(
    "changes",
    [
        {"wav": "/etc/passwd"},
        {"wav": "../other/a.wav"},
        {"video_path": "video/../../other"},
        {"video_path": "/data/frames"},
        {"video_id": "../../../a", "wav": "audio/a.wav"},
    ],
)
def test_a_file_outside_the_root_is_refused_by_name(tmp_path, changes):
    root = write_set(tmp_path / "set", [entry("ok"), entry(**changes)])
    with pytest.raises(DataError, match=r"test\.json, entry 1 .*outside the root"):
        open_manifest(root)


LINKS = ("audio", "audio/a.wav", "video", "video/frame_3", "video/frame_3/a.jpg", "labels.csv")


@pytest.mark.parametrize("name", [*LINKS, "test.json"])
def test_a_link_out_of_the_root_is_followed_only_if_asked_for(tmp_path, name):
    root = write_set(tmp_path / "set", [entry()])
    link, target = root / name, tmp_path / "disk" / "there"
    target.parent.mkdir()
    if link.exists():
        link.replace(target)
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(target)
    with pytest.raises(DataError) as refusal:
        open_manifest(root)
    assert f"{link} is a link to {target}, outside the root {root}" in str(refusal.value)
    assert "--follow-links" in str(refusal.value)
    assert open_manifest(root, follow_links=True).clips[0].wav == root / "audio" / "a.wav"


def test_links_inside_the_root_and_the_root_itself_may_be_links(tmp_path):
    root = write_set(tmp_path / "set", [entry()])
    (root / "real").mkdir()
    (root / "audio").symlink_to(root / "real")
    (root / "unused.wav").symlink_to("/")
    (tmp_path / "link").symlink_to(root)
    assert open_manifest(tmp_path / "link").digest == open_manifest(root).digest


@pytest.mark.parametrize("name", ["cat", "cat/cat0.wav", "cat/cat0.png"])
def test_a_link_out_of_plain_folders_is_refused(tmp_path, media, name):
    root = media.write_folders(tmp_path / "pets")
    shutil.move(root / name, tmp_path / "elsewhere")
    (root / name).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(DataError, match=f"{name} is a link to .*elsewhere"):
        open_manifest(root)
    assert len(open_manifest(root, follow_links=True).clips) == 4


def test_links_are_looked_for_by_folder_and_not_by_file(tmp_path, monkeypatch):
    found, resolve = [], os.path.realpath
    for count in (3, 60):
        root = write_set(tmp_path / str(count), [entry(str(i)) for i in range(count)])
        calls = []
        monkeypatch.setattr(
            "os.path.realpath", lambda p, calls=calls: calls.append(p) or resolve(p)
        )
        open_manifest(root)
        found.append(len(calls))
    assert found[0] == found[1] > 0


@pytest.mark.parametrize("key", ["video_id", "wav", "video_path", "labels"])
@pytest.mark.parametrize("text", ["a\0b", "x" * 300, "half \udcff"], ids=["NUL", "long", "half"])
def test_a_text_that_cannot_name_a_file_is_refused_by_its_field(tmp_path, key, text):
    root = write_set(tmp_path / "set", [entry("ok"), entry(**{key: text})])
    with pytest.raises(DataError, match=rf"test\.json, entry 1: {key} cannot be part"):
        open_manifest(root)


def test_a_path_with_a_nul_is_refused(tmp_path):
    root = write_set(tmp_path / "set", [entry()])
    for wrong in ({"label_file": "a\0b"}, {"list_file": "a\0b"}, {"root": "a\0b"}):
        with pytest.raises(DataError, match=r"cannot read the|is not a directory"):
            open_manifest(**({"root": root} | wrong))


@pytest.mark.parametrize("name", [b"caf\xe9", b"cat/caf\xe9.wav"])
def test_a_name_that_is_not_utf8_is_shown_escaped(tmp_path, media, name):
    root = media.write_folders(tmp_path / "pets")
    old = root / ("cat/cat0.wav" if name.endswith(b".wav") else "cat")
    os.rename(old, os.fsencode(root) + b"/" + name)  # noqa: PTH104
    with pytest.raises(DataError, match=r"contains b'caf\\xe9.*not UTF-8"):
        open_manifest(root)


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"data": 3}', '{"data": [1]}', '{"data": [{"video_id": "a"}]}']
)
def test_a_broken_list_is_named(tmp_path, text):
    root = write_set(tmp_path / "set", [entry()])
    (root / "test.json").write_text(text)
    with pytest.raises(DataError, match=r"test\.json"):
        open_manifest(root)


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ([], "no clips in"),
        ([entry(n) for n in "abcab"], r"2 duplicated id\(s\): a, b"),
        ([entry(), entry("b", "dgo")], r"entry 1 \('b'\): unknown label 'dgo'.* mean 'dog'"),
    ],
)
def test_a_contradictory_list_is_refused(tmp_path, entries, message):
    with pytest.raises(DataError, match=message):
        open_manifest(write_set(tmp_path / "set", entries))


def test_an_unknown_data_set_and_a_missing_root_are_refused(tmp_path):
    with pytest.raises(OptionError, match="did you mean 'kinetics50'"):
        open_manifest(tmp_path, "kinetics")
    with pytest.raises(DataError, match="is not a directory"):
        open_manifest(tmp_path / "nowhere")


@pytest.mark.parametrize(
    "text", ["", "index,mid\n", "a,b\n0,x\n", "index,mid\n0,x\n2,y\n", "index,mid\n0,x\n1,x\n"]
)
def test_a_broken_label_file_is_named(tmp_path, text):
    path = tmp_path / "labels.csv"
    path.write_text(text)
    with pytest.raises(DataError, match=r"labels\.csv"):
        read_labels(path)
    path.write_text('index,mid,display_name\n1,/m/b,"barks, loudly"\n0,/m/a,purrs\n')
    assert read_labels(path) == ("/m/a", "/m/b")


def test_a_released_list_with_foreign_paths_uses_the_folders_of_the_release(tmp_path):
    spec = SPECS["kinetics50"]
    foreign = entry(wav="/their/disk/audio/a.wav", video_path="/their/disk/video")
    root = write_set(tmp_path / "k50", [foreign])
    shutil.move(root / "test.json", root / spec.list_file)
    shutil.move(root / "labels.csv", root / spec.label_file)
    clip = open_manifest(root, "kinetics50").clips[0]
    assert clip.wav == root / "audio_val256_k=50" / "a.wav"
    assert clip.frames[9] == root / "image_mulframe_val256_k=50" / "frame_9" / "a.jpg"


@pytest.mark.parametrize("gone", ["list_file", "label_file"])
def test_a_release_without_its_files_is_told_in_one_sentence(tmp_path, gone):
    spec = SPECS["kinetics50"]
    for name in {spec.list_file, spec.label_file} - {getattr(spec, gone)}:
        (tmp_path / name).touch()
    missing = getattr(spec, gone)
    with pytest.raises(DataError, match=r"--list-file and --label-file") as refusal:
        open_manifest(tmp_path, "kinetics50")
    assert str(refusal.value).startswith(f"no file {tmp_path / missing}: ")
    assert str(refusal.value).count(missing) == 1


def test_a_missing_split_names_the_lists_that_are_there(tmp_path, media):
    root = write_set(tmp_path / "set", [entry()])
    (root / ".hidden.json").write_text("{}")
    with pytest.raises(DataError, match=r"no train\.json in .*: the lists there are test\.json;"):
        open_manifest(root, split="train")
    (root / "test.json").replace(root / "train.json")
    with pytest.raises(DataError, match=r"no test\.json in .*: the lists there are train\.json;"):
        open_manifest(root)
    pets = media.write_folders(tmp_path / "pets")
    with pytest.raises(DataError, match=r"no train\.json in .*pets: there is no list"):
        open_manifest(pets, split="train")
    (pets / "notes.json").write_text("{}")
    assert len(open_manifest(pets).clips) == 4


def test_plain_folders(tmp_path, media):
    manifest = read_folders(media.write_folders(tmp_path / "pets"))
    assert [c.id for c in manifest.clips] == ["cat/cat0", "cat/cat1", "dog/dog0", "dog/dog1"]
    assert manifest.classes == ("cat", "dog")
    assert [c.frame_id for c in manifest.clips] == [f"{c.id}/frame_0" for c in manifest.clips]


@pytest.mark.parametrize(("gone", "lacking"), [("cat0.wav", "sound"), ("cat0.png", "picture")])
def test_a_half_clip_in_a_folder_is_an_error(tmp_path, media, gone, lacking):
    root = media.write_folders(tmp_path / "pets")
    (root / "cat" / gone).unlink()
    with pytest.raises(DataError, match=rf"cat0\.\w+ has no {lacking}"):
        open_manifest(root)


@given(st.lists(st.sampled_from(["..", ".", "a", "b"]), max_size=6))
def test_inside_never_lets_a_path_out(tmp_path_factory, parts):
    root = tmp_path_factory.getbasetemp() / "x" / "y"
    try:
        full = inside(type(root)(*parts), root, "test")
    except DataError:
        return
    assert full.is_relative_to(root)
    assert ".." not in full.parts
