"""The preview of body-worn sensors."""

import numpy as np
import pytest
import tyro
from PIL import Image

from dasp.cli import data as commands
from dasp.core.errors import OptionError
from dasp.data.inertial import find_segments


def test_every_corruption_of_every_sensor_is_drawn(tmp_path, capsys):
    for activity in range(1, 20):
        (tmp_path / f"a{activity:02d}" / "p7").mkdir(parents=True)
    segment = find_segments(tmp_path, ("p7",))[4]
    values = np.random.default_rng(0).normal(size=(125, 45)).cumsum(axis=0) / 5
    np.savetxt(segment.path, values, fmt="%.4f", delimiter=",")

    def run(*words):
        given = [str(tmp_path), "--dataset", "dsa", "--split", "p7", "--out", str(tmp_path), *words]
        return tyro.cli(commands.preview, args=given)

    assert run("--clip", segment.id) == 0
    printed = capsys.readouterr().out.split()
    assert [path.rpartition("-")[2] for path in printed] == [
        "accelerometer.png",
        "gyroscope.png",
        "magnetometer.png",
    ]
    for path in printed:
        pixels = np.array(Image.open(path))
        assert pixels.shape[0] == 68 + 12 * 166
        cells = {
            pixels[68 + row * 166 :, 150 + column * 166 :][:160, :160].tobytes()
            for row in range(12)
            for column in range(6)
        }
        assert len(cells) > 40  # small ones cannot be seen
    with pytest.raises(OptionError, match="unknown clip 'p7/a01/s99'"):
        run("--clip", "p7/a01/s99")
