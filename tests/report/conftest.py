"""Plausible result files, made from a seed."""

import json
from pathlib import Path

import pytest

from dasp.core.seeding import numpy_generator
from dasp.report.folder import read_folder
from dasp.report.sections import sections_of
from dasp.report.shown import show

FRAMES = ("gaussian_noise", "fog", "pixelate")
SOUNDS = ("rain", "traffic")
SKILL = {"source": 0.0, "tent": -0.02, "read": 0.01, "dasp": 0.04}
OPTIONS = {
    "source": {"predict": "before"},
    "dasp": {"lr": 0.001, "delta": 0.05, "predict": "before"},
}


def domain_names(protocol, severity, frames=FRAMES, sounds=SOUNDS):
    video = [f"video/{name}/{severity}" for name in frames]
    audio = [f"audio/{name}/{severity}" for name in sounds]
    if protocol.endswith("video"):
        return video
    if protocol.endswith("audio"):
        return audio
    return ["clean", *sorted(video + audio, key=lambda name: name.split("/")[1])]


def diagnosed(draws, domains, each):
    scores, biased = {"audio": [], "video": []}, []
    for name in domains:
        for _ in range(each):
            batch = {modality: 0.2 + draws.normal(0, 0.01) for modality in scores}
            if name != "clean":
                batch[name.split("/")[0]] += 0.08 + draws.normal(0, 0.02)
            lowest = min(batch.values())
            biased.append([m for m, score in batch.items() if score - lowest > 0.05])
            for modality, score in batch.items():
                scores[modality].append(score)
    return scores, biased


def forgotten(draws, method, domains, seen):
    """Right counts on clean data, falling the faster the worse the method."""
    if not seen:
        return None
    slope = {"source": 0.0, "dasp": 0.001, "read": 0.004, "tent": 0.01}.get(method, 0.006)
    found = {"seen": seen}
    for place, (view, start) in enumerate({"joint": 0.94, "audio": 0.7, "video": 0.8}.items()):
        noise = draws.normal(0, 0.004 if slope else 0.0, domains + 1)
        noise[0] = 0.0
        shares = [start - slope * (1 + place) * i + noise[i] for i in range(domains + 1)]
        found[view] = [int(min(max(share, 0.0), 1.0) * seen) for share in shares]
    return found


def make_result(
    label="dasp",
    protocol="interleaved",
    model="sounding_shapes_0",
    seed=0,
    severity=5,
    samples=128,
    batch_size=32,
    options=None,
    method=None,
    domains=None,
    clean_after=0,
):
    """Return what one result file holds."""
    method = method or label
    draws = numpy_generator(seed, label, protocol, model, str(severity), str(options))
    domains = domains or domain_names(protocol, severity)
    each = samples // batch_size
    right, counts = [], []
    for place, name in enumerate(domains):
        level = 0.9 if name == "clean" else numpy_generator(0, name).uniform(0.5, 0.85)
        batch = draws.binomial(batch_size, level + SKILL.get(method, 0.0), each).tolist()
        right += batch
        counts.append(
            {
                "name": name,
                "right": sum(batch),
                "seen": samples,
                "first_batch": place * each,
                "batches": each,
            }
        )
    scores, biased = diagnosed(draws, domains, each) if method == "dasp" else (None, None)
    seen, adapts = samples * len(domains), method != "source"
    return {
        "format": "dasp-result-2",
        "key": format(int(draws.integers(2**62)), "016x"),
        "cell": {
            "data": {"name": "sounding_shapes", "split": "test", "samples": samples},
            "model": {"name": model, "digest": format(len(model), "08x")},
            "label": label,
            "method": method,
            "options": OPTIONS.get(method, {"lr": 0.001}) | (options or {}),
            "protocol": protocol,
            "severity": severity,
            "seed": seed,
            "batch_size": batch_size,
        },
        "result": {
            "accuracy": round(100 * sum(right) / seen, 2),
            "right": sum(right),
            "seen": seen,
            "domains": counts,
            "batches": {
                "right": right,
                "seen": [batch_size] * len(right),
                "updated": [adapts] * len(right),
                "rejected": [None] * len(right),
                "scores": scores,
                "biased": biased,
            },
            "updates": len(right) if adapts else 0,
            "rejections": 0,
            "skipped": [],
            "clean_after": forgotten(draws, method, len(domains), clean_after),
        },
        "measured": {
            "seconds": {"load": 1.0, "adapt": 0.02 * len(right) * (3 if adapts else 1)},
            "peak_mib": 512.0,
            "samples_per_second": 900.0,
            "finished": f"2026-01-0{1 + seed}T10:00:00+00:00",
            "machine": {"cores": 2, "processor": "x86_64"},
            "versions": {"dasp": "0.1.0", "torch": "2.13.0"},
        },
    }


def with_right(result, counts):
    """Say how many samples of each domain were right, spread over its batches from the first."""
    content = result["result"]
    for domain, count in zip(content["domains"], counts, strict=True):
        domain["right"] = count
        for batch in range(domain["first_batch"], domain["first_batch"] + domain["batches"]):
            content["batches"]["right"][batch] = min(count, content["batches"]["seen"][batch])
            count -= content["batches"]["right"][batch]
    content["right"] = sum(counts)
    content["accuracy"] = 100 * content["right"] / content["seen"]
    return result


def made_efficiency(
    label="dasp", model="sounding_shapes_0", slower=2.0, mib=40.0, trainable=20480, **changes
):
    """Return what one efficiency file holds: five rounds of 1,344 samples."""
    draws = numpy_generator(0, "efficiency", label, model)
    source = [{"load": 0.2, "adapt": s, "processor": 2 * s} for s in draws.uniform(2.0, 2.2, 5)]
    noise = draws.uniform(0.98, 1.02, 5)
    rounds = [
        {name: value * (1 if name == "load" else slower * n) for name, value in base.items()}
        for n, base in zip(noise, source, strict=True)
    ]
    encoded = {"call": "encode", "gradient": False, "forward": 1344, "backward": 0}
    joint = {"call": "fuse", "gradient": label != "source", "forward": 1344}
    passes = [{**encoded, "modalities": [name]} for name in ("audio", "video")]
    passes.append({**joint, "modalities": ["audio", "video"], "backward": 672 * joint["gradient"]})
    cell = make_result(label, model=model)["cell"] | {"rounds": 5, "threads": 2} | changes
    return {
        "format": "dasp-efficiency-1",
        "key": format(int(draws.integers(2**62)), "016x"),
        "cell": cell,
        "result": {
            "samples": 1344,
            "batches": 21,
            "passes": passes,
            "trainable": trainable if label != "source" else 0,
            "total": 400_000,
        },
        "measured": {
            "rounds": rounds,
            "source": source,
            "memory": {"before_mib": 400.0, "peak_mib": 400.0 + mib, "over_mib": mib},
            "loading": "raw inputs, read from the feature store",
            "finished": "2026-01-01T10:00:00+00:00",
        },
    }


def made_indicators(model="a", named=3):
    """Return what one indicators file holds; `named` of four batches are named rightly."""
    keys = ("entropy", "confidence", "released", "paper")

    def sight(level, hits):
        means = {key: {"mean": level, "std": 0.01} for key in keys}
        return {"right": 50, **means, "named": dict.fromkeys(keys, hits)}

    def domain(name, family, audio, video):
        sights = {"audio": sight(audio, named), "video": sight(video, named)}
        counts = {"seen": 100, "joint": 95, "batches": 4}
        return {"name": name, "family": family, **counts, "modalities": sights}

    floor = {key: {"mean": 0.1, "std": 0.0} for key in ("released", "paper")}
    return {
        "format": "dasp-indicators-1",
        "key": model,
        "cell": {
            "data": {"name": "sounding_shapes", "samples": 100},
            "model": {"name": model, "digest": model},
            "severity": 5,
            "batch_size": 64,
            "seed": 0,
            "corruptions": [],
        },
        "result": {
            "modalities": ["audio", "video"],
            "noise_floor": floor,
            "domains": [
                domain("clean", None, 0.2, 0.3),
                domain("audio/rain/5", "weather", 0.5, 0.3),
                domain("video/fog/5", "weather", 0.2, 0.6),
            ],
        },
        "measured": {},
    }


def make_grid(labels, protocols, models, **settings):
    return [
        make_result(label, protocol, model, **settings)
        for label in labels
        for protocol in protocols
        for model in models
    ]


def save(results, folder):
    """Write each result to a file of its own."""
    for result in results:
        path = Path(folder) / f"{result['key']}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(result))


def plan_record(folder, name, files, place=1, **changes):
    """Write which files belong to a plan, and return where."""
    content = {
        "format": "dasp-plan-1",
        "name": name,
        "title": f"Plan {name}",
        "about": "What it asks.",
        "kind": "streams",
        "show": ["comparison"],
        "command": f"dasp bench {name}",
        "files": files,
    } | changes
    path = Path(folder) / "plans" / f"{place:02}-{name.replace('/', '-')}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))
    return path


@pytest.fixture
def save_plan():
    return plan_record


@pytest.fixture
def sections_from(tmp_path):
    """Return the sections of results that belong to no plan."""

    def sections(results):
        save(results, tmp_path / "results")
        return sections_of(read_folder(tmp_path / "results"))

    return sections


@pytest.fixture
def show_from(sections_from):
    """Return what is shown of results that belong to no plan."""
    return lambda results: [show(section) for section in sections_from(results)]


@pytest.fixture
def make():
    return make_result


@pytest.fixture
def make_right():
    """Make a run of which each domain has so many per cent right."""

    def made(label, protocol, *percents, **settings):
        names = [f"video/fog/{n + 1}" for n in range(len(percents))]
        settings = {"samples": 6400, "batch_size": 64, "domains": names} | settings
        result = make_result(label, protocol, **settings)
        return with_right(result, [round(p * settings["samples"] / 100) for p in percents])

    return made


@pytest.fixture
def make_indicators():
    return made_indicators


@pytest.fixture
def make_efficiency():
    return made_efficiency


@pytest.fixture
def save_results():
    return save


@pytest.fixture(scope="session")
def results():
    """Four methods, all protocols, two source models."""
    protocols = (
        "per_domain/video",
        "per_domain/audio",
        "continual/video",
        "continual/audio",
        "interleaved",
    )
    models = ("sounding_shapes_0", "sounding_shapes_1")
    return make_grid(("dasp", "tent", "source", "read"), protocols, models)
