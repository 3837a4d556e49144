import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import dasp
from dasp.core.errors import DataError
from dasp.data import ClipDataset, open_manifest
from dasp.streams import Domain, DomainDamage, all_domains, corrupt_tree


def damages(seed=0, severities=(1, 5), corruptions=("contrast", "gaussian_noise", "rain")):
    domains = all_domains(corruptions=corruptions, severities=severities)
    return [DomainDamage(domain, seed) for domain in domains]


CHOSEN = damages()
SLOW = damages(severities=(4, 5), corruptions=["glass_blur"])


@pytest.fixture
def pets(tmp_path, media):
    return media.write_folders(tmp_path / "pets", per_class=3)


def tree(root):
    return {p.relative_to(root): p.read_bytes() for p in root.rglob("*") if p.is_file()}


def test_the_tree_is_that_of_read_and_equals_corrupting_while_loading(pets):
    manifest = open_manifest(pets)
    report = corrupt_tree(manifest, damages(seed=2))
    assert (report.made, report.kept, report.failed) == (8 * 6, 0, [])
    place = pets.with_name("pets-C") / "contrast" / "severity_5" / "dog" / "dog2.jpg"
    with Image.open(place) as picture:
        assert (picture.format, picture.size) == ("JPEG", (224, 224))
    for damage in damages(seed=2):
        domain, live = damage.domain, ClipDataset(manifest, damage=damage)
        copies = manifest.corrupted(domain.modality, domain.corruption, domain.severity)
        made = ClipDataset(copies)
        for index in range(len(live)):
            assert np.array_equal(made.picture(index), live.picture(index))
            assert np.array_equal(made.wave(index), live.wave(index))


def test_workers_and_interruptions_change_no_byte(pets, tmp_path):
    manifest = open_manifest(pets)
    corrupt_tree(manifest, CHOSEN, workers=0, out=tmp_path / "one")
    corrupt_tree(manifest, CHOSEN, workers=2, out=tmp_path / "two")
    whole = tree(tmp_path / "one")
    assert tree(tmp_path / "two") == whole
    copies = [p for p in (tmp_path / "two").rglob("*") if p.suffix in (".jpg", ".wav")]
    for path in sorted(copies)[::2]:
        path.unlink()
    report = corrupt_tree(manifest, CHOSEN, workers=2, out=tmp_path / "two")
    assert (report.made, report.kept) == (24, 24)
    assert tree(tmp_path / "two") == whole


def group_is_alive(group):
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_kill_in_the_middle_leaves_no_half_file_and_no_process(tmp_path, media):
    pets = media.write_folders(tmp_path / "pets", per_class=10, seconds=0.1)
    program = (
        "import sys; from dasp.data import open_manifest;"
        "from dasp.streams import DomainDamage, all_domains, corrupt_tree;"
        "domains = all_domains(['video'], ['glass_blur'], [4, 5]);"
        "corrupt_tree(open_manifest(sys.argv[1]), [DomainDamage(d) for d in domains], workers=2)"
    )
    source = str(Path(dasp.__file__).parents[1])
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(pets)], cwd=source, start_new_session=True
    )
    copies = tmp_path / "pets-C"
    end = time.monotonic() + 60
    while len(list(copies.rglob("[!.]*.jpg"))) < 4 and time.monotonic() < end:
        assert process.poll() is None
        time.sleep(0.002)
    os.kill(process.pid, signal.SIGKILL)  # the workers are to notice by themselves
    process.wait()
    while group_is_alive(process.pid) and time.monotonic() < end:
        time.sleep(0.01)
    assert not group_is_alive(process.pid)
    found = len(list(copies.rglob("[!.]*.jpg")))
    assert 4 <= found < 40
    time.sleep(1.1)  # younger leftovers might belong to a run that is still going
    report = corrupt_tree(open_manifest(pets), SLOW, workers=2)
    assert (report.made, report.kept) == (40 - found, found)
    corrupt_tree(open_manifest(pets), SLOW, workers=2, out=tmp_path / "whole")
    assert tree(copies) == tree(tmp_path / "whole" / "pets-C")


def test_trees_made_otherwise_are_not_mixed(pets):
    manifest = open_manifest(pets)
    corrupt_tree(manifest, CHOSEN[:1])
    with pytest.raises(DataError, match=r"severity_1 was made with .*'seed': 0"):
        corrupt_tree(manifest, damages(seed=1)[:1])
    foreign = pets.with_name("pets-C") / "fog" / "severity_2" / "cat"
    foreign.mkdir(parents=True)
    Image.new("RGB", (224, 224)).save(foreign / "cat0.jpg")
    with pytest.raises(DataError, match=r"severity_2 contains files of another program"):
        corrupt_tree(manifest, [DomainDamage(Domain("video", "fog", 2))])


def test_a_clip_that_cannot_be_read_is_reported_and_the_rest_is_made(pets):
    (pets / "cat" / "cat1.png").write_bytes(b"")
    (pets / "dog" / "dog0.wav").write_bytes(b"")
    report = corrupt_tree(open_manifest(pets), CHOSEN, workers=2)
    assert {name for name, _ in report.failed} == {"cat/cat1", "dog/dog0"}
    assert all("cat1.png" in reason or "dog0.wav" in reason for _, reason in report.failed)
    assert report.made == 8 * 5
