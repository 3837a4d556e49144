"""Plans: what is read from files and flags, which runs they make, and what is refused at once."""

from dataclasses import replace
from pathlib import Path

import pytest

from dasp.bench.datasets import DataOptions
from dasp.bench.plan import (
    PLANS,
    MethodRow,
    data_options,
    load_plan,
    load_plans,
    of_methods,
    plan_from,
    plan_names,
    resolved,
    with_methods,
    with_settings,
)
from dasp.bench.references import find_method
from dasp.core.errors import ContractError, DaspError, OptionError
from dasp.methods import METHODS

SMALL = Path(__file__).with_name("small.py")


def keys(plan):
    return [job.run.key for _, job in plan.jobs()]


def test_every_plan_of_the_package_is_valid():
    for name in plan_names():
        for plan in load_plans(name).values():
            for data in ("sounding_shapes", "kinetics50", "vggsound"):
                assert all(resolved(row, data) for row in plan.methods.values())
            assert plan.title
            assert plan.about
        text = (PLANS / f"{name}.toml").read_text()
        assert text.startswith("# ")
        assert f"dasp bench {name}" in text.splitlines()[0]


def test_the_paper_is_a_list_of_plans_that_share_their_runs():
    plans = load_plans("paper")
    assert next(iter(plans)) == "paper/overview"
    assert not set(plans) & set(load_plans("robust"))  # both may be kept in one folder
    overview = set(keys(plans["paper/overview"]))
    assert set(keys(plans["paper/interleaved"])) < overview
    for label, job in plans["paper/rebalance"].jobs():
        assert (job.run.key in overview) == (not label.endswith("+rebalance"))
        assert ("rebalance_memory" in job.run.options) == (job.run.options["rebalance"] > 0)
    with pytest.raises(OptionError, match="list of"):
        load_plan("paper")
    able = {name for name in METHODS if not find_method(name).exactly_two_modalities}
    assert {row.method for row in load_plan("robust/three").methods.values()} <= able


def test_options_follow_the_data_and_a_row_has_the_last_word():
    assert resolved(MethodRow("dasp"), "vggsound")["lambda_ent"] == 0.8
    assert resolved(MethodRow("dasp", {"lambda_ent": 0.7}), "vggsound")["lambda_ent"] == 0.7
    assert resolved(MethodRow("dasp"), "kinetics50")["lambda_ent"] == 0.5
    assert resolved(MethodRow("dasp"), "folder")["lr"] == 1e-4
    tuned = data_options("sounding_shapes")["dasp"]["lr"]
    assert resolved(MethodRow("dasp"), "sounding_shapes")["lr"] == tuned


def test_an_option_is_varied_one_value_per_row():
    content = {"methods": ["source", "dasp"], "vary": {"dasp": {"delta": [0.01, 0.1]}}}
    plan = plan_from(content, "mine.toml")
    assert list(plan.methods) == ["source", "dasp", "dasp delta=0.01", "dasp delta=0.1"]
    assert plan.methods["dasp delta=0.1"] == MethodRow("dasp", {"delta": 0.1})
    with pytest.raises(OptionError, match="unknown row in vary"):
        plan_from(content | {"methods": ["source"]}, "mine.toml")


def test_plans_from_files(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(
        'models = ["sounding_shapes_0"]\nseverities = [1, 3]\n[data]\nsamples = 8\nroot = "a"\n'
        '[methods.a]\nmethod = "dasp"\ndelta = 0.1\nfit = 4\n[methods.tent]\n'
    )
    plan = load_plan(path)
    row = MethodRow("dasp", {"delta": 0.1}, fit=4)
    assert plan.methods == {"a": row, "tent": MethodRow("tent")}
    assert plan.severities == (1, 3)
    assert plan.data == DataOptions(samples=8, root=Path("a"))
    (tmp_path / "all.toml").write_text('plans = ["mine.toml", "quick"]\n')
    assert list(load_plans(tmp_path / "all.toml")) == ["mine", "quick"]
    (tmp_path / "twice.toml").write_text('plans = ["mine.toml", "mine.toml"]\n')
    with pytest.raises(OptionError, match="two plans named mine"):
        load_plans(tmp_path / "twice.toml")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"modles": []}, "did you mean 'models'"),
        ({"kind": "stream"}, "did you mean 'streams'"),
        ({"data": {"sample": 1}}, "did you mean 'samples'"),
        ({"data": {"on_bad": "skp"}}, "did you mean 'skip'"),
        ({"data": {"samples": 0}}, "samples per domain, not 0"),
        ({"severities": 5}, r"severities is a list, such as \[5\]"),
        ({"tokens": "float8"}, "unknown value of tokens 'float8'"),
        ({"batch_sizes": [0]}, "batch_sizes must be .* not 0"),
        ({"clean_after": -1}, "clean_after"),
    ],
)
def test_wrong_keys_and_values_are_refused(content, message):
    with pytest.raises(OptionError, match=message):
        plan_from(content, "mine.toml")


def test_unknown_and_damaged_plans(tmp_path):
    with pytest.raises(OptionError, match="did you mean 'quick'"):
        load_plan("quik")
    with pytest.raises(OptionError, match="does not exist"):
        load_plan(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("models = [")
    with pytest.raises(OptionError, match="not valid TOML"):
        load_plan(tmp_path / "bad.toml")


def test_jobs_cover_the_product(plan):
    jobs = [job for _, job in replace(plan, severities=(3, 5), seeds=(0, 1)).jobs()]
    assert len(jobs) == 3 * 2 * 2 * 2
    assert len({job.run.key for job in jobs}) == len({job.run.filename for job in jobs}) == 24
    assert jobs[0].run.options["lr"] == 1e-4
    assert jobs[0].run.options["predict"] == "before"
    per_domain = replace(plan, clean_after=12, protocols=("per_domain/video", "interleaved"))
    assert [job.run.clean_after for _, job in per_domain.jobs()] == [0, 0, 0, 12, 12, 12]


@pytest.mark.parametrize(
    "change",
    [
        lambda p: replace(p, batch_sizes=(16,)),
        lambda p: replace(p, data=replace(p.data, samples=21)),
        lambda p: replace(p, data=replace(p.data, seed=1)),
        lambda p: replace(p, corruptions=("contrast",)),
        lambda p: replace(p, severities=(4,)),
        lambda p: replace(p, clean_after=3),
        lambda p: replace(p, kind="efficiency"),
        lambda p: replace(p, protocols=("recurring",)),
        lambda p: replace(p, methods={n: replace(r, fit=5) for n, r in p.methods.items()}),
        lambda p: with_settings(p, ["*.lr=0.5"]),
    ],
)
def test_any_deciding_setting_changes_every_key(plan, change):
    assert set(keys(plan)).isdisjoint(keys(change(plan)))


def test_labels_and_severities_without_effect_change_no_key(plan):
    renamed = {f"my {label}": row for label, row in plan.methods.items()}
    assert keys(replace(plan, methods=renamed)) == keys(plan)
    clean = replace(plan, protocols=("clean",), corruptions=())
    assert keys(replace(clean, severities=(2,))) == keys(clean)
    listed = replace(plan, protocols=("gradual",), corruptions=("fog", "rain"))
    everything = ("fog", "rain", "motion_blur", "traffic")
    assert keys(replace(listed, corruptions=())) == keys(replace(listed, corruptions=everything))
    half = keys(replace(plan, tokens="float16"))
    same = [a == b for a, b in zip(half, keys(plan), strict=True)]
    assert same == [False, True, False] * 2  # tent tunes the encoder and never sees tokens


def test_settings_reach_every_option_and_refuse_wrong_ones(plan):
    changed = with_settings(plan, ["dasp.delta=0.03", "dasp.variant=paper", "*.steps=2"])
    assert changed.methods["dasp"].options["delta"] == 0.03
    assert changed.methods["dasp"].options["variant"] == "paper"
    assert all(row.options["steps"] == 2 for row in changed.methods.values())
    for wrong, message in {
        "dasp.detla=1": "did you mean 'delta'",
        "dapss.delta=1": "did you mean 'dasp'",
        "delta=1": "METHOD.OPTION=VALUE",
        "dasp.delta": "METHOD.OPTION=VALUE",
    }.items():
        with pytest.raises(OptionError, match=message):
            with_settings(plan, [wrong])


def test_methods_by_name_or_file(plan):
    chosen = with_methods(plan, ["dasp", "read", f"{SMALL}:Mine"])
    assert list(chosen.methods) == ["dasp", "read", "mine"]
    assert chosen.methods["dasp"].options == plan.methods["dasp"].options
    assert list(of_methods(plan, ["tent", "read"]).methods) == ["tent"]
    for wrong, message in {
        f"{SMALL}:Mne": "did you mean 'Mine'",
        f"{SMALL}:build": "not a subclass",
        "nowhere.py:Mine": "does not exist",
        "dapss": "did you mean 'dasp'",
    }.items():
        with pytest.raises(DaspError, match=message):
            with_methods(plan, [wrong])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"protocols": ("interleave",)}, "did you mean 'interleaved'"),
        ({"protocols": ("continual/depth",)}, "damages depth, which .* not have"),
        ({"models": ("sounding_shape",)}, "unknown pretrained model"),
        ({"severities": (6,)}, "severity of"),
        ({"corruptions": ("foog",)}, "did you mean 'fog'"),
        ({"methods": {"dasp": MethodRow("dasp", {"detla": 1.0})}}, "did you mean 'delta'"),
        ({"data": DataOptions(split="tets")}, "split must be one of"),
        ({"data": DataOptions("shapes")}, "did you mean 'sounding_shapes'"),
        ({"data": DataOptions("kinetics50")}, "needs its directory: give --root"),
        ({"models": (f"{SMALL}:build:int8",)}, "Tent tunes the encoders"),
        ({"data": DataOptions(samples=10**9)}, "takes more than a year: lower samples"),
    ],
)
def test_what_cannot_run_is_refused_before_anything_runs(plan, change, message):
    with pytest.raises((OptionError, ContractError), match=message):
        replace(plan, **change).jobs()


def test_too_few_samples_to_deal_out_are_refused():
    """Some of the domains would have none."""
    few = plan_from({"protocols": ["once"], "methods": {"source": {}}, "data": {"samples": 20}}, "")
    with pytest.raises(OptionError, match=r"deals its samples out to 21 domains, and .* only 20"):
        few.jobs()
    assert replace(few, data=replace(few.data, samples=21)).jobs()
