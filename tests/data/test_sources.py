"""Fetching recordings: from a publisher that answers, from files at hand, and without a network."""

import hashlib
import io
import json
import zipfile
from urllib.error import URLError

import pytest

from dasp.cli.main import main
from dasp.core.errors import DataError, OptionError
from dasp.data import inertial, sources

ALIGNMENT = "0 100 sil\n100 5000 bin\n5000 9000 blue\n"


def zipped(**files):
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, text in files.items():
            archive.writestr(name.replace("__", "/").replace("_dot_", "."), text)
    return content.getvalue()


class Publisher:
    """Answers as Zenodo does, and keeps what was asked for."""

    def __init__(self, files):
        self.files, self.asked = files, []

    def __call__(self, url):
        self.asked.append(url)
        if url == sources.ZENODO:
            entries = [
                {
                    "key": name,
                    "size": len(content),
                    "checksum": f"md5:{hashlib.md5(content).hexdigest()}",
                    "links": {"self": f"https://files/{name}"},
                }
                for name, content in self.files.items()
            ]
            return io.BytesIO(json.dumps({"files": entries}).encode())
        return io.BytesIO(self.files[url.rpartition("/")[2]])


@pytest.fixture
def publisher():
    return Publisher(
        {
            "alignments.zip": zipped(alignments__s1__bbaf2n_dot_align=ALIGNMENT),
            "s1.zip": zipped(s1__bbaf2n_dot_mpg="film"),
            "s2.zip": zipped(s2__bbaf2n_dot_mpg="film"),
        }
    )


def test_a_speaker_is_fetched_verified_and_unpacked(tmp_path, publisher):
    lines = []
    sources.fetch("grid", tmp_path, (), lines.append, publisher)
    text = "\n".join(lines)
    assert "CC BY 4.0" in text
    assert "md5:" in text
    assert "2 words of 1 files, 1 speaker" in text
    assert (tmp_path / "s1" / "bbaf2n.mpg").read_text() == "film"
    asked = len(publisher.asked)
    sources.fetch("grid", tmp_path, (), lines.append, publisher)  # all is there
    assert len(publisher.asked) == asked


def test_another_file_than_the_published_one_is_refused(tmp_path, publisher):
    (tmp_path / "s1.zip").write_bytes(b"half")
    with pytest.raises(DataError, match=r"s1.zip is not the published file: it has 4 bytes"):
        sources.fetch("grid", tmp_path, (), lambda _: None, publisher)
    assert not (tmp_path / "s1").exists()


def test_without_a_network_it_says_what_to_download_and_where(tmp_path):
    def nobody(url):
        raise URLError("no route to host")

    with pytest.raises(DataError) as error:
        sources.fetch("grid", tmp_path, ("s1", "s2"), lambda _: None, nobody)
    for word in ("no route to host", "alignments.zip", "s2.zip", "zenodo.org", str(tmp_path)):
        assert word in str(error.value)
    with pytest.raises(DataError, match=r"archive.ics.uci.edu.*zip"):
        sources.fetch("dsa", tmp_path, (), lambda _: None, nobody)


def test_an_archive_at_hand_is_read_to_its_last_file(tmp_path, monkeypatch):
    row = ",".join(["0.5"] * 45)
    monkeypatch.setattr(inertial, "PEOPLE", ("p1",))
    monkeypatch.setattr(inertial, "SEGMENTS", 1)
    names = [f"data__a{k:02d}__p1__s01_dot_txt" for k in range(1, 20)]
    content = zipped(**dict.fromkeys(names, f"{row}\n" * 125))
    archive = tmp_path / "daily+and+sports+activities.zip"
    archive.write_bytes(zipped(inside_dot_zip=content))
    lines = []
    sources.fetch("dsa", tmp_path, (), lines.append)
    assert lines[-1].endswith("19 segments of 1 people, all read")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / archive.name).write_bytes(content[:200])
    with pytest.raises(DataError, match="cannot unpack"):
        sources.fetch("dsa", tmp_path / "broken", (), lines.append)


def test_wrong_speakers_are_refused(tmp_path):
    for wrong in ("s21", "s35", "bob"):
        with pytest.raises(OptionError, match="s1 to s34 without s21"):
            sources.fetch("grid", tmp_path, (wrong,), lambda _: None)
    with pytest.raises(OptionError, match="omit --speakers"):
        sources.fetch("dsa", tmp_path, ("s1",), lambda _: None)


def test_the_command_says_it_in_a_few_lines(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sources, "_ask", sources._no_answer)
    assert main(["data", "fetch", "dsa", str(tmp_path / "new")]) == 2
    told = capsys.readouterr()
    assert "CC BY 4.0" in told.out
    assert "Download by hand" in told.err
