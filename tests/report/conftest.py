"""Small results, made by hand or from a seed."""

from dataclasses import replace

import numpy as np
import pytest

from dasp.bench import results
from dasp.bench.results import BatchCounts, Counts, DomainCount, PlanRecord, Result, RunConfig
from dasp.core.seeding import numpy_generator
from dasp.report.compare import PlanRun, group_runs

DOMAINS = ("video/fog/5", "audio/rain/5")
SKILL = {"source": 0.7, "tent": 0.66, "read": 0.72, "dasp": 0.8}


def made_result(
    method="dasp",
    protocol="interleaved",
    model="shapes_0",
    seed=0,
    domains=DOMAINS,
    samples=64,
    batch_size=16,
    right=None,
    hits=None,
    named=None,
    clean=None,
    options=None,
    **changes,
):
    """Return a result; `hits` is (domains, samples), `right` a number per domain, else drawn.

    `named` holds one word per batch: "a", "v", "av" or "" for what the diagnosis named.
    """
    draws = numpy_generator(seed, method, protocol, model, str(options))
    if hits is None and right is not None:
        hits = [np.arange(samples) < count for count in right]
    if hits is None:
        hits = draws.random((len(domains), samples)) < SKILL.get(method, 0.75)
    hits = np.asarray(hits, dtype=bool)
    each = -(-samples // batch_size)
    counts = [
        DomainCount(name, int(own.sum()), samples, n * each, each, np.packbits(own).tobytes().hex())
        for n, (name, own) in enumerate(zip(domains, hits, strict=True))
    ]
    parts = [part for own in hits for part in np.split(own, range(batch_size, samples, batch_size))]
    if named is None and method == "dasp":
        letters = ["".join(p[0] for p in name.split("+") if "/" in p) for name in domains]
        named = [letter for letter in letters for _ in range(each)]
    words = {"a": "audio", "v": "video"}
    biased = named and [sorted({words[letter] for letter in word}) for word in named]
    scores = biased and {
        name: [0.3 if name in found else 0.2 for found in biased] for name in words.values()
    }
    length, adapts = len(parts), method != "source"
    right, seen = [int(part.sum()) for part in parts], [len(part) for part in parts]
    batches = BatchCounts(right, seen, [adapts] * length, [None] * length, scores, biased)
    run = RunConfig(
        data={"name": "shapes", "split": "test", "samples": samples, "seed": 0},
        model={"name": model, "digest": f"{model}-digest"},
        method=method,
        versions={"method": 1, "loop": 1},
        options={"lr": 0.001, "delta": 0.05, **(options or {})},
        protocol=protocol,
        severity=5,
        domains=dict.fromkeys(domains, ""),
        visits=len(domains),
        seed=seed,
        batch_size=batch_size,
    )
    total, updates = int(hits.sum()), length * adapts
    share = 100 * total / hits.size
    counted = Counts(share, total, hits.size, counts, batches, updates, 0, clean_after=clean)
    seconds = {"load": 0.1, "adapt": 0.02 * length * (3 if adapts else 1)}
    measured = {"seconds": seconds, "samples_per_second": 900.0, "finished": f"2026-01-0{1 + seed}"}
    return Result(replace(run, **changes), counted, measured)


def made_cost(method="dasp", slower=2.0, trainable=100, **changes):
    """Return a measurement of cost: two rounds of 64 samples beside Source."""
    source = [{"load": 0.5, "adapt": 1.0, "processor": 2.0}] * 2
    rounds = [{"load": 0.5, "adapt": slower, "processor": 2 * slower}] * 2
    learns = method != "source"
    encode = {"call": "encode", "modalities": ["audio"], "gradient": False, "forward": 64}
    fuse = {"call": "fuse", "modalities": ["audio", "video"], "gradient": learns, "forward": 128}
    measured = {
        "samples": 64,
        "trainable": trainable,
        "total": 1000,
        "passes": [{**encode, "backward": 0}, {**fuse, "backward": 64 * learns}],
        "rounds": rounds,
        "source": source,
        "memory": {"before_mib": 300.0, "peak_mib": 340.0, "over_mib": 40.0},
    }
    run = replace(made_result(method).run, cost={"rounds": 2, "threads": 1}, **changes)
    return Result(run, None, measured)


def written_folder(path, plans, show=("comparison",), missing=()):
    """Write results as plans: {name: [(label, result)]}; `missing` are written in no file."""
    path.mkdir(parents=True, exist_ok=True)
    for name, rows in plans.items():
        for _, result in rows:
            if result not in missing:
                results.write_result(path, result)
        keys = [(label, result.run.key) for label, result in rows]
        words = (name, f"Plan {name}", "About <b>it</b>.", list(show), f"dasp bench {name}")
        results.write_plan(path, PlanRecord(*words, keys))
    return path


make = pytest.fixture(lambda: made_result, scope="session", name="make")
make_cost = pytest.fixture(lambda: made_cost, scope="session", name="make_cost")
write = pytest.fixture(lambda: written_folder, scope="session", name="write")


@pytest.fixture(scope="session")
def groups():
    """Return all groups of runs: of results, or (label, result) pairs."""

    def grouped(*results):
        pairs = [r if isinstance(r, tuple) else (r.run.method, r) for r in results]
        return group_runs(PlanRun(label, result) for label, result in pairs)

    return grouped


@pytest.fixture(scope="session")
def group(groups):
    """Return the single group of runs."""

    def grouped(*results):
        (found,) = groups(*results)
        return found

    return grouped


@pytest.fixture(scope="session")
def grid(make):
    """Four methods, two protocols, two models."""
    return [
        make(method, protocol, model)
        for method in ("source", "tent", "read", "dasp")
        for protocol in ("continual/video", "interleaved")
        for model in ("shapes_0", "shapes_1")
    ]
