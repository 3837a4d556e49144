import json
from pathlib import Path

import pytest

from dasp.cli.main import main
from dasp.data import open_manifest
from dasp.streams import all_domains, checksums, corrupt_tree
from dasp.streams.checksum import BUILT_IN, shapes_checksums

KEPT = json.loads(Path(__file__).with_name("checksums.json").read_text())
SOME = all_domains(corruptions=["fog", "gaussian_noise", "thunder"], severities=[3])


@pytest.fixture
def pets(tmp_path, media):
    return media.write_folders(tmp_path / "pets")


@pytest.mark.same_bytes
def test_every_domain_is_what_it_was(pets):
    """When a corruption is changed on purpose, run keep_checksums.py."""
    assert checksums(open_manifest(pets), all_domains(), count=1) == KEPT


def test_hashes_do_not_depend_on_workers_nor_on_the_way_to_the_data(pets):
    manifest = open_manifest(pets)
    hashes = checksums(manifest, SOME, seed=3, workers=0)
    assert list(hashes) == [
        "video/clean",
        "audio/clean",
        "video/gaussian_noise/3",
        "video/fog/3",
        "audio/gaussian_noise/3",
        "audio/thunder/3",
    ]
    assert len(set(hashes.values())) == len(hashes)
    assert checksums(manifest, SOME, seed=3, workers=2) == hashes
    corrupt_tree(manifest, SOME, seed=3)
    assert checksums(manifest, SOME, seed=3, on_disk=True) == hashes


def test_hashes_see_the_seed_the_count_and_the_data(pets):
    manifest = open_manifest(pets)
    hashes = checksums(manifest, SOME, workers=0)
    for other in (checksums(manifest, SOME, seed=1), checksums(manifest, SOME, count=1)):
        assert all(other[str(d)] != hashes[str(d)] for d in SOME)
    (pets / "cat" / "cat0.png").replace(pets / "cat" / "keep")
    (pets / "cat" / "cat1.png").replace(pets / "cat" / "cat0.png")
    (pets / "cat" / "keep").replace(pets / "cat" / "cat1.png")
    swapped = checksums(manifest, SOME)
    assert [name for name in hashes if hashes[name] != swapped[name]] == [
        "video/clean",
        "video/gaussian_noise/3",
        "video/fog/3",
    ]


@pytest.mark.same_bytes
def test_the_built_in_set_is_the_published_one():
    """When the set is changed on purpose: raise its VERSION and run keep_checksums.py."""
    assert shapes_checksums() == json.loads(BUILT_IN.read_text())


def test_a_user_compares_the_built_in_set_with_the_published_one(tmp_path, capsys):
    assert main(["data", "checksum"]) == 0
    assert "balanced/test/audio\n" in capsys.readouterr().out
    other = json.loads(BUILT_IN.read_text()) | {"balanced/test/audio": "0" * 16}
    (tmp_path / "other.json").write_text(json.dumps(other))
    assert main(["data", "checksum", "--against", str(tmp_path / "other.json")]) == 1
    assert capsys.readouterr().out.endswith("differs: balanced/test/audio\n")
