"""The parts of the frame corruptions against SciPy, scikit-image and the plain loops."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import ndimage
from scipy.stats import poisson
from skimage.color import hsv2rgb, rgb2hsv

from dasp.corruptions import corrupt_frame
from dasp.corruptions.blur import lens_kernel, scatter_sources
from dasp.corruptions.digital import _mirrored_gaussian
from dasp.corruptions.kernels import (
    bell,
    gaussian_blur,
    motion_smear,
    reflect_between,
    reflect_on,
    sample,
    unit_weights,
)
from dasp.corruptions.noise import _shot_tables
from dasp.corruptions.weather import _enlarged_noise, plasma


def generator(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def noise_picture(height: int = 60, width: int = 71, smooth: float = 1.0) -> np.ndarray:
    rough = generator(5).uniform(0, 255, (height, width, 3))
    return ndimage.gaussian_filter(rough, (smooth, smooth, 0)).astype(np.uint8)


@given(
    height=st.integers(2, 30), width=st.integers(2, 30), reach=st.integers(1, 4),
    seed=st.integers(0, 2**16),
)  # fmt: skip
def test_scattering_is_the_loop_over_pixels_to_the_bit(height, width, reach, seed):
    loop = np.arange(height * width).reshape(height, width)
    rows = range(reach + 1, height - reach + 1)
    columns = range(reach + 1, width - reach + 1)
    down, right = generator(seed).integers(
        -reach, reach, (2, len(rows), len(columns)), dtype=np.int16
    )
    for row in reversed(rows):
        for column in reversed(columns):
            at = (row - rows.start, column - columns.start)
            loop[row, column] = loop[row + down[at], column + right[at]]
    ours = scatter_sources(height, width, reach, generator(seed))
    assert np.array_equal(ours, loop.ravel())


@pytest.mark.parametrize("sigma", [0.05, 0.7, 1.0, 1.5, 3.0])
def test_gaussian_blur_is_scipys(sigma):
    image = noise_picture()
    right = ndimage.gaussian_filter(image.astype(float), (sigma, sigma, 0), mode="nearest")
    assert np.abs(gaussian_blur(image, sigma) - (right - 0.5)).max() < 0.52


@given(st.lists(st.floats(0.001, 10), min_size=1, max_size=60))
def test_weights_sum_to_exactly_one(weights):
    assert unit_weights(np.array(weights)).sum(dtype=np.float64) == 1
    half = bell(weights[0], len(weights)).astype(np.float64)
    assert half[0] + 2 * half[1:].sum() == 1


@pytest.mark.parametrize("angle", [-135.0, -90.0, -45.0, -7.3, 0.0, 30.0, 45.0])
def test_motion_smear_takes_each_tap_one_pixel_further(angle):
    image = noise_picture().astype(np.float32)
    expected, taps = np.zeros_like(image), np.arange(2 * 4 + 1)
    weights = np.exp(-(taps**2) / (2 * 3.0**2))
    height, width = image.shape[:2]
    for tap, weight in zip(taps, weights / weights.sum(), strict=True):
        down = np.ceil(tap * np.sin(np.radians(angle)) - 0.5)
        right = np.ceil(tap * np.cos(np.radians(angle)) - 0.5)
        rows = np.clip(np.arange(height) + int(down), 0, height - 1)
        columns = np.clip(np.arange(width) + int(right), 0, width - 1)
        expected += weight * image[np.ix_(rows, columns)]
    assert np.abs(motion_smear(image, 4, 3, angle) - expected).max() < 0.02


@pytest.mark.parametrize(
    ("severity", "radius", "softness"),
    [(1, 3, 0.1), (2, 4, 0.5), (3, 6, 0.5), (4, 8, 0.5), (5, 10, 0.5)],
)
def test_defocus_is_a_convolution_with_the_lens(severity, radius, softness):
    kernel, image = lens_kernel(radius, softness), noise_picture(224, 230, 3.0)
    # Only a disk that fills its square brightens.
    assert kernel.sum() == pytest.approx(1, abs=1e-4) if radius < 8 else 1.005 < kernel.sum() < 1.02
    planes = [
        ndimage.convolve(image[..., c].astype(float), kernel, mode="mirror") for c in range(3)
    ]
    right = np.clip(np.stack(planes, axis=-1), 0, 255)
    assert np.abs(corrupt_frame(image, "defocus_blur", severity) - (right - 0.5)).max() < 0.502


@pytest.mark.parametrize(
    ("reflect", "mode"), [(reflect_on, "mirror"), (reflect_between, "reflect")]
)
def test_sampling_is_scipys(reflect, mode):
    image = noise_picture(40, 50)
    y, x = generator(1).uniform(-90, 120, (2, 40, 50))
    places = [np.rint(place * 64) / 64 for place in (y, x)]
    planes = [
        ndimage.map_coordinates(image[..., c].astype(float), places, order=1, mode=mode)
        for c in range(3)
    ]
    assert np.abs(sample(image, y, x, reflect) - np.stack(planes, axis=-1)).max() < 0.51


@pytest.mark.parametrize("sigma", [2.24, 17.92, 156.8])
def test_the_matrix_of_a_wide_gaussian_is_scipys(sigma):
    right = ndimage.gaussian_filter1d(np.eye(60), sigma, axis=0, mode="reflect", truncate=3)
    assert np.abs(_mirrored_gaussian(60, sigma) - right).max() < 2**-18


def test_smooth_fields_do_not_depend_on_the_order_of_sums():
    narrow, wide = _mirrored_gaussian(90, 2.24), _mirrored_gaussian(110, 77.0)
    noise = generator(3).integers(-(2**15), 2**15, (90, 110), dtype=np.int16).astype(np.float64)
    rows, columns = generator(4).permutation(90), generator(4).permutation(110)
    shuffled = narrow[:, rows] @ noise[np.ix_(rows, columns)] @ wide[:, columns].T
    assert np.array_equal(shuffled, narrow @ noise @ wide.T)


def test_zoom_blur_is_a_mean_of_scipys_zooms():
    image = noise_picture(224, 224, 2.0).astype(np.float32)
    total, factors = 2 * image, 1 + 0.03 * np.arange(1, 11)
    for factor in factors:
        size = int(np.ceil(224 / factor))
        top = (224 - size) // 2
        seen = image[top : top + size, top : top + size]
        grown = ndimage.zoom(seen, (factor, factor, 1), order=1)
        trim = (len(grown) - 224) // 2
        total += grown[trim : trim + 224, trim : trim + 224]
    ours = corrupt_frame(image.astype(np.uint8), "zoom_blur", 5)
    assert np.abs(ours - (total / 12 - 0.5)).max() < 1.1


def test_enlarged_noise_keeps_mean_and_gets_smoother():
    noise = [_enlarged_noise(224, 224, 4.0, generator(seed)) for seed in range(20)]
    assert np.mean(noise) == pytest.approx(0, abs=0.02)
    assert 0.55 < np.std(noise) < 0.75  # linear interpolation keeps (2/3)² of the variance
    assert np.corrcoef(noise[0][:, :-1].ravel(), noise[0][:, 1:].ravel())[0, 1] > 0.9


@pytest.mark.parametrize("photons", [60, 25, 12, 5, 3])
def test_shot_tables_hold_the_poisson_laws(photons):
    keep, own, other = (table.reshape(256, -1) for table in _shot_tables(photons))
    cells = keep.shape[1]
    share = keep / (2**32 / cells) / cells
    for value in (0, 1, 90, 200, 255):
        law = np.bincount(own[value], share[value], 256)
        law += np.bincount(other[value], 1 / cells - share[value], 256)
        counts = np.arange(photons)
        right = poisson.pmf(counts, value / 255 * photons)
        bytes_ = (counts / photons * 255).astype(int)
        assert law[bytes_] == pytest.approx(right, abs=1e-6)
        assert law[255] == pytest.approx(1 - right.sum(), abs=1e-6)


def test_gaussian_and_impulse_noise_have_the_published_size():
    grey = np.full((256, 256, 3), 128, np.uint8)
    noise = corrupt_frame(grey, "gaussian_noise", 1).astype(float) + 0.5 - grey
    assert noise.mean() == pytest.approx(0, abs=0.2)
    assert noise.std() == pytest.approx(0.08 * 255, rel=0.01)
    impulses = corrupt_frame(grey, "impulse_noise", 5)
    for level in (0, 255):
        assert (impulses == level).mean() == pytest.approx(0.27 / 2, abs=0.003)


@pytest.mark.parametrize("severity", range(1, 6))
def test_brightness_is_a_lift_of_value_in_hsv(severity):
    image = generator(2).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    image[:4] = 0
    hsv = rgb2hsv(image / 255)
    hsv[..., 2] = np.clip(hsv[..., 2] + severity / 10, 0, 1)
    right = hsv2rgb(hsv) * 255
    assert np.abs(corrupt_frame(image, "brightness", severity) - (right - 0.5)).max() < 0.501


@pytest.mark.parametrize(("side", "map_side"), [(16, 16), (224, 256), (256, 256), (300, 512)])
def test_plasma_fills_zero_to_one(side, map_side):
    cloud = plasma(side, 1.5, generator())
    assert cloud.shape == (map_side, map_side)
    assert cloud.min() == 0
    assert cloud.max() == 1


def test_plasma_has_the_same_law_as_the_original():
    """Mean and spread of 120 clouds as of 300 made by the original's recursion."""
    clouds = [plasma(224, 2, generator(seed))[:224, :224] for seed in range(120)]
    assert np.mean([cloud.mean() for cloud in clouds]) == pytest.approx(0.496, abs=0.03)
    assert np.mean([cloud.std() for cloud in clouds]) == pytest.approx(0.148, abs=0.008)
    steps = np.mean([np.abs(np.diff(cloud, axis=1)).mean() for cloud in clouds])
    assert steps == pytest.approx(0.0029, rel=0.1)
