import json
from pathlib import Path

import pytest

from dasp.cli.main import main
from dasp.data import open_manifest
from dasp.streams import DomainDamage, all_domains, checksums
from dasp.streams.checksum import BUILT_IN, shapes_checksums

KEPT = json.loads(Path(__file__).with_name("checksums.json").read_text())
SOME = all_domains(corruptions=["fog", "gaussian_noise", "thunder"], severities=[3])


def damages(domains=SOME, seed=0):
    return [DomainDamage(domain, seed) for domain in domains]


@pytest.fixture
def pets(tmp_path, media):
    return media.write_folders(tmp_path / "pets")


@pytest.mark.same_bytes
def test_every_domain_is_what_it_was(pets):
    """When a corruption is changed on purpose, run keep_checksums.py."""
    assert checksums(open_manifest(pets), damages(all_domains()), count=1) == KEPT


def test_hashes_see_the_seed_the_count_and_the_data_but_not_the_workers(pets):
    manifest = open_manifest(pets)
    hashes = checksums(manifest, damages(), workers=0)
    frames = ["video/gaussian_noise/3", "video/fog/3"]
    sounds = ["audio/gaussian_noise/3", "audio/thunder/3"]
    assert list(hashes) == ["video/clean", "audio/clean", *frames, *sounds]
    assert len(set(hashes.values())) == len(hashes)
    assert checksums(manifest, damages(), workers=2) == hashes
    others = [checksums(manifest, damages(seed=1)), checksums(manifest, damages(), count=1)]
    assert all(other[name] != hashes[name] for other in others for name in frames + sounds)
    (pets / "cat" / "cat1.png").write_bytes((pets / "cat" / "cat0.png").read_bytes())
    changed = checksums(manifest, damages())
    assert [name for name in hashes if hashes[name] != changed[name]] == ["video/clean", *frames]


@pytest.mark.same_bytes
def test_the_built_in_set_is_the_published_one():
    """When the set is changed on purpose: raise its VERSION and run keep_checksums.py."""
    assert shapes_checksums() == json.loads(BUILT_IN.read_text())


def test_a_user_compares_the_built_in_set_with_the_published_one(capsys, monkeypatch):
    published = json.loads(BUILT_IN.read_text())
    for found, code, last in (
        (published, 0, f"{len(published)} hashes, all equal to checksums.json of this package"),
        (published | {"sound/test/depth": "0" * 16}, 1, "differs: sound/test/depth"),
    ):
        monkeypatch.setattr("dasp.cli.data.shapes_checksums", lambda found=found, **_: found)
        assert main(["data", "checksum"]) == code
        printed = capsys.readouterr().out.splitlines()
        assert printed[:-1] == [f"{value}  {name}" for name, value in found.items()]
        assert printed[-1] == last
