import csv
from io import StringIO

import pytest
import torch

from dasp.core.errors import DataError, OptionError
from dasp.core.sensors import BODY_UNITS
from dasp.data.inertial import ACTIVITIES
from dasp.page.demo import CHOICES, FIRST, Demo
from dasp.page.export import csv_text
from dasp.page.streams import TOLD, BuiltInStream, WornStream


@pytest.fixture(scope="module")
def demo():
    return Demo("DASP", stream=BuiltInStream(batch=8, pool=16))


def test_lanes_start_alike_and_a_reset_gives_the_same_again(demo):
    update = demo.next()
    assert list(update.point["overall"]) == ["Source", "READ", "DASP"]
    predictions = [sample["predictions"] for sample in update.samples]
    assert all(len({str(lane) for lane in lanes.values()}) == 1 for lanes in predictions)
    assert update.point["truth"] == {}
    first = update.samples[0]
    assert first["originals"] == first["pictures"]  # nothing is damaged yet
    assert update.sounds[first["original_sound"]] == update.sounds[0]
    demo.reset()
    assert demo.next().point == update.point
    demo.control({"do": "corrupt", "modality": "video", "corruption": "fog", "severity": 5})
    damaged = demo.next()
    assert damaged.samples[0]["originals"]["video"] != damaged.samples[0]["pictures"]["video"]
    demo.control({"do": "order", "value": "story"})
    demo.reset()


def test_another_method_starts_over_and_our_own_has_a_threshold_of_its_own(demo):
    demo.next()
    assert FIRST in demo.about()["methods"]
    for command in ({"do": "method", "value": "Magic"}, {"do": "method"}, {"do": "stage"}):
        with pytest.raises(OptionError):
            demo.control(command)
    with pytest.raises(OptionError, match="dasp demo --root DIR"):
        demo.control({"do": "stage", "value": "worn on the body"})
    assert demo.state()["method"] == "DASP"
    assert demo.control({"do": "method", "value": FIRST}) is True
    assert demo.about()["watched"] == "DASP"  # until the run starts over
    demo.reset()
    assert demo.state()["method"] == FIRST
    assert list(demo.lanes) == ["Source", "READ", "DASP", FIRST]
    assert demo.about()["profile"]
    assert "clean samples" in demo.legend
    point = demo.next().point
    assert point["n"] == 0
    assert set(point["limits"]) == {"audio", "video"}
    demo.control({"do": "method", "value": "Tent"})  # it tunes the encoders, on inputs
    demo.reset()
    demo.next()
    assert demo.next().point["overall"]["Tent"] is not None
    assert set(CHOICES) == set(demo.about()["methods"])


def test_the_story_is_told_once_and_leaves_the_controls_to_the_viewer():
    stream = BuiltInStream(batch=1, pool=2)
    scenes, seen = len(stream.story), []
    count = sum(scene.batches for scene in stream.story)
    for number in range(count):
        state = stream.state()
        batch = stream.next()
        seen.append((state["scene"], tuple(sorted(batch.truth))))
        assert batch.ends == (TOLD if number == count - 1 else "")
        assert {n for n, d in state["damage"].items() if d["severity"]} == set(batch.truth)
    order = list(dict.fromkeys(seen))
    sensors = [(), ("audio",), ("video",), ("audio", "video"), ()]
    assert order == list(zip(range(scenes), sensors, strict=True))
    assert stream.state()["order"] == "manual"
    assert stream.next().truth == {}
    stream.control({"do": "order", "value": "story"})
    assert stream.state()["caption"] == stream.story[0].caption


def test_body_worn_sensors_are_the_second_stage(tmp_path):
    with pytest.raises(DataError, match="dasp data fetch dsa"):
        Demo("DASP", root=tmp_path)
    row = ",".join(["0.5"] * 45)
    for label in range(len(ACTIVITIES)):
        for person in ("p7", "p8"):
            folder = tmp_path / f"a{label + 1:02d}" / person
            folder.mkdir(parents=True)
            for number in range(1, 61):
                (folder / f"s{number:02d}.txt").write_text(f"{row}\n" * 125)
    stream = WornStream(tmp_path, batch=4, pool=8)
    stream.control({"do": "corrupt", "modality": "left_leg", "corruption": "noise", "severity": 5})
    batch = stream.next()
    assert tuple(batch.inputs) == BODY_UNITS
    assert batch.inputs["left_leg"].shape == (4, 9, 125)
    still = batch.inputs["torso"]
    assert (batch.inputs["left_leg"] - still).std() > 0.1
    assert torch.equal(batch.inputs["right_leg"], still)
    assert batch.truth == {"left_leg": "noise 5"}
    assert batch.originals["left_leg"] != batch.pictures[0]["left_leg"]
    assert {name for scene in stream.story for name in scene.damage} == set(BODY_UNITS)
    made = Demo("DASP", root=tmp_path, stream=BuiltInStream(batch=2, pool=2))
    assert made.control({"do": "stage", "value": "worn on the body"})
    made.reset()
    assert made.about()["modalities"] == list(BODY_UNITS)
    assert made.about()["title"] == "dasp: sensors worn on the body"


def test_the_stream_is_a_table(demo):
    demo.control({"do": "method", "value": "DASP"})
    demo.reset()
    points = [demo.next().point for _ in range(2)]
    rows = list(csv.DictReader(StringIO(csv_text(points))))
    assert [row["n"] for row in rows] == ["0", "1"]
    assert float(rows[0]["scores audio"]) == points[0]["scores"]["audio"]
    assert float(rows[1]["overall DASP"]) == points[1]["overall"]["DASP"]
    assert csv_text([]) == "n\n"
