import numpy as np
import pytest

from dasp.core.errors import OptionError
from dasp.corruptions import corrupt_depth, corrupt_frame, corrupt_sound
from dasp.data import open_manifest
from dasp.data.features import corruption_image
from dasp.data.media import read_frame, read_wave
from dasp.data.shapes import SoundingShapes
from dasp.streams import Domain, DomainDamage, all_domains, domain_dataset

FOG = Domain("video", "fog", 3)
RAIN = Domain("audio", "rain", 5)


@pytest.fixture
def manifest(tmp_path, media):
    return open_manifest(media.write_folders(tmp_path / "pets"))


def test_a_domain_is_checked_when_it_is_named():
    assert str(FOG) == "video/fog/3"
    for severity in (0, 6, -1, True, 2.5):
        with pytest.raises(OptionError, match="severity of fog must be 1 to 5"):
            Domain("video", "fog", severity)
    with pytest.raises(OptionError, match="did you mean 'fog'"):
        Domain("video", "fgo", 3)
    with pytest.raises(OptionError, match="use 'video', 'audio' or 'depth'"):
        Domain("smell", "fog", 3)


def test_all_domains_in_the_order_of_the_papers():
    domains = all_domains()
    assert len(domains) == 105
    ends = ["video/gaussian_noise/1", "video/jpeg_compression/5"]
    ends += ["audio/gaussian_noise/1", "audio/wind/5"]
    assert [str(domains[i]) for i in (0, 74, 75, 104)] == ends
    chosen = [str(d) for d in all_domains(corruptions=["gaussian_noise", "rain"], severities=[2])]
    assert chosen == ["video/gaussian_noise/2", "audio/gaussian_noise/2", "audio/rain/2"]
    with pytest.raises(OptionError, match="did you mean 'rain'"):
        all_domains(corruptions=["rian"])


def test_damage_is_the_corruption_of_that_seed_and_sample(manifest):
    clip = manifest.clips[1]
    image, wave = corruption_image(read_frame(clip.frames[0])), read_wave(clip.wav)
    seen = np.array(domain_dataset(manifest, FOG, seed=4).picture(1)).astype(int)
    expected = corrupt_frame(image, "fog", 3, seed=4, sample_id="cat/cat1/frame_0")
    assert seen.shape == (224, 224, 3)
    assert np.abs(seen - expected).mean() < 4  # but for the JPEG
    heard = domain_dataset(manifest, RAIN, seed=4).wave(1)
    expected = corrupt_sound(wave, "rain", 5, seed=4, sample_id="cat/cat1")
    assert np.abs(heard - np.clip(expected, -1, 1)).max() <= 1.01 / 32768


def test_depth_is_damaged_in_the_built_in_set_and_refused_on_clips(manifest):
    fog = DomainDamage(Domain("depth", "fog", 5), seed=2)
    clean, damaged = SoundingShapes("test", 2), SoundingShapes("test", 2, damage=fog)
    expected = corrupt_depth(clean.depth(1), "fog", 5, 2, clean.sample_id(1))
    np.testing.assert_array_equal(damaged.depth(1), expected)
    np.testing.assert_array_equal(damaged.frame(1), clean.frame(1))
    assert not np.array_equal(damaged.depth(1), clean.depth(1))
    with pytest.raises(OptionError, match="clips have no depth"):
        domain_dataset(manifest, fog.domain)


def test_fingerprints_tell_settings_apart():
    kinds = [("video", "fog"), ("audio", "rain"), ("depth", "fog")]
    domains = [Domain(*kind, severity) for kind in kinds for severity in (3, 4)]
    marks = {DomainDamage(domain, seed).fingerprint() for domain in domains for seed in (0, 1)}
    assert len(marks) == 12
    assert DomainDamage(FOG).fingerprint() == DomainDamage(FOG).fingerprint()
