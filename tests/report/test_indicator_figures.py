"""Figures and tables of what source models show, against values worked out by hand."""

from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dasp.core.errors import InputError
from dasp.report.indicator_curves import batch_size_figure, severity_figure
from dasp.report.indicator_figures import (
    indicator_figures,
    pointing_figures,
    redundancy_figure,
)
from dasp.report.indicator_tables import (
    correlation,
    correlation_table,
    indicator_tables,
    naming_share,
    naming_table,
    rank_correlation,
)
from dasp.report.indicators import dominant, indicator_groups, indicators_of, usual

# (right of 100, entropy, confidence, released, paper) of audio and of video
CLEAN = ((80, 1.0, 0.8, 0.20, 0.05), (90, 0.4, 0.9, 0.20, 0.06))
SEEN = {
    "audio/rain": ((50, 1.5, 0.6, 0.30, 0.07), (90, 0.4, 0.9, 0.20, 0.06)),
    "audio/wind": ((60, 1.4, 0.7, 0.26, 0.05), (90, 0.4, 0.9, 0.20, 0.06)),
    "video/fog": ((80, 1.0, 0.8, 0.20, 0.05), (40, 0.9, 0.85, 0.40, 0.20)),
    "video/snow": ((80, 1.0, 0.8, 0.20, 0.05), (30, 1.2, 0.7, 0.50, 0.30)),
}
FAMILIES = {"rain": "weather", "wind": "weather", "fog": "weather", "snow": "digital"}


def sight(values, named):
    right, *figures = values
    names = ("entropy", "confidence", "released", "paper")
    means = {n: {"mean": v, "std": 0.01} for n, v in zip(names, figures, strict=True)}
    return {"right": right, **means, "named": dict.fromkeys(names, named)}


def content(model="a", severity=5, batch_size=64, seen=SEEN, shift=0.0, samples=100, clean=CLEAN):
    """Return what one file holds; `shift` is added to the redundancy of damaged modalities."""
    domains = [("clean", None, clean)]
    for name, values in seen.items():
        damaged, corruption = name.split("/")
        audio, video = values
        moved = [
            (*v[:3], v[3] + shift, v[4]) if m == damaged else v
            for m, v in (("audio", audio), ("video", video))
        ]
        domains.append((f"{name}/{severity}", FAMILIES[corruption], moved))
    return {
        "format": "dasp-indicators-1",
        "key": f"{model}{severity}{batch_size}",
        "cell": {
            "data": {"name": "sounding_shapes", "samples": samples},
            "model": {"name": model, "digest": model},
            "severity": severity,
            "batch_size": batch_size,
            "seed": 0,
            "corruptions": [],
            "code": "",
        },
        "result": {
            "modalities": ["audio", "video"],
            "noise_floor": {
                "released": {"mean": 1 / batch_size**0.5, "std": 0.0},
                "paper": {"mean": 1 / (batch_size - 1), "std": 0.0},
            },
            "domains": [
                {
                    "name": name,
                    "family": family,
                    "seen": 100,
                    "joint": 95,
                    "batches": 4,
                    "modalities": {
                        "audio": sight(audio, 3 if name.startswith("audio") else 1),
                        "video": sight(video, 2),
                    },
                }
                for name, family, (audio, video) in domains
            ],
        },
        "measured": {},
    }


def made(**settings):
    return indicators_of(content(**settings))


def drawn(figure):
    root = ElementTree.fromstring(f"<div>{figure.drawing}</div>")
    return [t.text for t in root.iter("title")], [t.text for t in root.iter("text")]


def test_redundancy_beside_accuracy():
    figure = redundancy_figure([made(model="a"), made(model="b", shift=0.1)])
    tips, words = drawn(figure)
    # the mean over both models
    assert "audio, audio rain: 0.35" in tips
    assert "video, audio rain: 0.2" in tips
    assert "video, video snow: 30" in tips
    assert "together, clean: 95" in tips
    # the dominant modality first, each by its own accuracy
    rows = [word for word in words if word in {"clean", *(n.replace("/", " ") for n in SEEN)}]
    assert rows == ["clean", "video fog", "video snow", "audio wind", "audio rain"]
    assert "mean over 2 source models" in figure.caption
    assert "video −1.00 (released), −1.00 (paper)" in figure.caption


def test_correlations_by_hand():
    views = [made()]
    # audio: clean, rain, wind: paper .05 .07 .05, accuracy 80 50 60
    # ranks of paper ½ 2 ½, of accuracy 2 0 1: covariance -1.5, roots of 1.5 and 2
    expected = -1.5 / (1.5 * 2) ** 0.5
    assert correlation(views, ["audio"], "paper")[0] == pytest.approx(expected)
    assert correlation(views, ["audio"], "released") == (pytest.approx(-1), None)
    assert correlation(views, ["video"], "confidence")[0] == pytest.approx(1)
    rows = correlation_table(views).rows
    assert [row[0].text for row in rows] == ["video", "audio", "all"]


def test_who_is_named():
    views = [made()]
    assert dominant(views) == "video"
    # fog: entropy .9 of video against 1.0 of audio, confidence .85 against .8: both mislead
    assert naming_share(views, "video", "entropy") == [50]
    assert naming_share(views, "video", "confidence") == [50]
    assert naming_share(views, "video", "released") == [100]
    # wind: paper .05 of audio against .06 of video
    assert naming_share(views, "audio", "paper") == [50]
    table = naming_table(views)
    entropy = {row[0].text: row[1].quantities for row in table.rows}
    assert {name: (one.value, batches.value) for name, (one, batches) in entropy.items()} == {
        "video": (50, 50),
        "audio": (100, 75),
        "dominant": (50, 50),
        "other": (100, 75),
        "any": (75, 62.5),
    }


def test_each_model_has_its_own_dominant_modality():
    other = made(model="b", clean=((95, *CLEAN[0][1:]), CLEAN[1]))
    assert dominant([other]) == "audio"
    views = [made(), other]
    # video of the first model, audio of the second
    assert naming_share(views, "dominant", "entropy") == [50, 100]
    assert naming_share(views, "other", "entropy") == [100, 50]
    figures = pointing_figures(views)
    assert sorted(f.name for f in figures) == [
        "indicators-pointing-audio",
        "indicators-pointing-video",
    ]
    assert all("one source model" in figure.caption for figure in figures)


def test_what_misleads_is_shaded():
    (figure,) = pointing_figures([made()])
    tips, words = drawn(figure)
    shaded = [tip for tip in tips if "does not name" in tip]
    assert shaded == [
        "video fog: higher entropy does not name video",
        "video fog: lower confidence does not name video",
    ]
    assert "audio rain" not in words
    assert "higher entropy in 50 %, by lower confidence in 50 %" in figure.caption
    assert "by higher redundancy (released) in 100 %" in figure.caption
    assert "audio 80.0 %, video 90.0 %" in figure.caption


def test_without_domains_of_the_dominant_one_nothing_is_drawn():
    audio = {name: values for name, values in SEEN.items() if name.startswith("audio")}
    assert pointing_figures([made(seen=audio)]) == []


def test_severity_starts_clean():
    mild = {k: tuple(v) for k, v in SEEN.items()}
    views = [made(severity=1, seen=mild, shift=-0.05), made(severity=5)]
    tips, words = drawn(severity_figure(views))
    assert "weather: 0.2 at 0" in tips
    assert "weather: 0.35 at 1" in tips
    assert "weather: 0.4 at 5" in tips
    assert "digital: 0.5 at 5" in tips
    # audio: rain and wind together
    assert "weather: 0.28 at 5" in tips
    assert "undamaged modality" in tips
    assert {"video damaged, released form", "audio damaged, paper form"} <= set(words)
    caption = severity_figure(views).caption
    assert "video 2 of 2 (released), 2 of 2 (paper)" in caption
    assert "audio 2 of 2 (released), 1 of 2 (paper)" in caption
    assert "one source model" in caption


def test_batch_sizes_over_the_noise_floor():
    views = [made(batch_size=16, shift=0.1), made(batch_size=64), made(batch_size=64, severity=1)]
    figure = batch_size_figure(views)
    tips, _ = drawn(figure)
    assert "video, damaged: 0.55 at 16" in tips
    assert "video, damaged: 0.45 at 64" in tips
    assert "audio, clean: 0.2 at 64" in tips
    assert "uncorrelated noise" in tips
    assert "severity 5" in figure.caption
    assert "video +0.350 (released), +0.190 (paper) at 16" in figure.caption
    root = ElementTree.fromstring(f"<div>{figure.drawing}</div>")
    floor = [p.get("d") for p in root.iter("path") if p.findtext("title") == "uncorrelated noise"]
    assert len(floor) == 2


def test_only_what_there_is_enough_for_is_shown():
    def names(*views):
        return [item.name for item in (*indicator_figures(views), *indicator_tables(views))]

    by_domain = ["indicators-redundancy", "indicators-pointing-video"]
    tables = ["indicators-naming-by-damaged", "indicators-correlation"]
    assert names(made()) == by_domain + tables
    assert names(made(), made(severity=1)) == [
        *by_domain,
        "indicators-severity",
        *tables,
        "indicators-naming-by-severity",
    ]
    assert names(made(), made(batch_size=8)) == [
        "indicators-batch-size",
        "indicators-naming-by-batch-size",
    ]
    assert names(made(seen={})) == []


def test_the_usual_view_is_the_worst_damage_in_the_usual_batches():
    views = [made(severity=s, batch_size=b) for s in (1, 5) for b in (8, 64, 256)]
    (view,) = usual(views)
    assert (view.severity, view.batch_size) == (5, 64)


def test_other_data_are_never_averaged_in():
    groups = indicator_groups([made(), made(model="b"), made(samples=200)])
    assert [len(group) for group in groups] == [2, 1]


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda c: c.update(format="dasp-result-2"), "not a file of format"),
        (lambda c: c["result"].pop("noise_floor"), "'noise_floor' is missing"),
        (lambda c: c["result"]["domains"].pop(0), "contradict"),
        (lambda c: c["result"]["domains"][0].update(joint=101), "contradict"),
        (lambda c: c["result"]["domains"][1]["modalities"].pop("audio"), "contradict"),
        (lambda c: c["result"]["domains"][0].update(seen="many"), "right kind"),
        (
            lambda c: c["result"]["domains"][0]["modalities"]["audio"]["paper"].update(
                mean=float("nan")
            ),
            "contradict",
        ),
    ],
)
def test_a_damaged_file_says_what_is_wrong(spoil, message):
    spoiled = content()
    spoil(spoiled)
    with pytest.raises(InputError, match=message):
        indicators_of(spoiled)


@given(st.lists(st.tuples(st.integers(-5, 5), st.integers(-5, 5)), min_size=2, max_size=12))
def test_rank_correlation_is_symmetric_and_bounded(points):
    xs, ys = [float(x) for x, _ in points], [float(y) for _, y in points]
    value = rank_correlation(xs, ys)
    assert value == rank_correlation(ys, xs)
    if value is not None:
        assert abs(value) <= 1 + 1e-9
        assert rank_correlation([x**3 for x in xs], ys) == pytest.approx(value)
        assert rank_correlation([-x for x in xs], ys) == pytest.approx(-value)
    assert rank_correlation(xs, [1.0] * len(xs)) is None
