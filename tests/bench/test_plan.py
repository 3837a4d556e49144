from dataclasses import replace
from pathlib import Path

import pytest

from dasp.bench.plan import PLANS, Entry, data_options, resolved, with_methods, with_settings
from dasp.bench.plan_files import load_plan, load_plans, plan_from, plan_names
from dasp.bench.tuning import grid, tuning_plan
from dasp.core.errors import DaspError, OptionError

SMALL = Path(__file__).with_name("small.py")


def test_every_plan_of_the_package_is_valid():
    for name in plan_names():
        for plan in load_plans(name).values():
            for data in ("sounding_shapes", "kinetics50", "vggsound"):
                assert all(resolved(entry, data) for entry in plan.methods.values())
            assert plan.title
            assert plan.about
        text = (PLANS / f"{name}.toml").read_text()
        assert text.startswith("# ")
        assert f"dasp bench {name}" in text.splitlines()[0]


def test_the_paper_is_a_list_of_plans_that_share_their_runs():
    plans = load_plans("paper")
    assert next(iter(plans)) == "overview"
    overview, one = plans["overview"], plans["interleaved"]
    assert {cell.key for cell in one.cells()} < {cell.key for cell in overview.cells()}
    with pytest.raises(OptionError, match="list of"):
        load_plan("paper")


def test_options_follow_the_data_and_a_row_has_the_last_word():
    assert resolved(Entry("dasp"), "vggsound")["lambda_ent"] == 0.8
    assert resolved(Entry("dasp", {"lambda_ent": 0.7}), "vggsound")["lambda_ent"] == 0.7
    assert resolved(Entry("dasp"), "kinetics50")["lambda_ent"] == 0.5
    assert resolved(Entry("dasp"), "folder")["lr"] == 1e-4
    assert (
        resolved(Entry("dasp"), "sounding_shapes")["lr"]
        == data_options("sounding_shapes")["dasp"]["lr"]
    )


def test_an_option_is_varied_one_value_a_row():
    content = {"methods": ["source", "dasp"], "vary": {"dasp": {"delta": [0.01, 0.1]}}}
    plan = plan_from(content, "mine.toml")
    assert list(plan.methods) == ["source", "dasp", "dasp delta=0.01", "dasp delta=0.1"]
    assert plan.methods["dasp delta=0.1"] == Entry("dasp", {"delta": 0.1})
    with pytest.raises(OptionError, match="row varied"):
        plan_from(content | {"methods": ["source"]}, "mine.toml")


def test_a_list_of_plans_may_name_files_beside_it(tmp_path):
    (tmp_path / "one.toml").write_text('methods = ["source"]\n')
    (tmp_path / "all.toml").write_text('plans = ["one.toml", "quick"]\n')
    assert list(load_plans(tmp_path / "all.toml")) == ["one", "quick"]


def test_cells_cover_the_product(plan):
    cells = replace(plan, severities=(3, 5), seeds=(0, 1)).cells()
    assert len(cells) == 3 * 2 * 2 * 2
    assert len({cell.key for cell in cells}) == len(cells)
    assert len({cell.filename for cell in cells}) == len(cells)
    assert cells[0].options["lr"] == 1e-4
    assert cells[0].options["predict"] == "before"


@pytest.mark.parametrize(
    "change",
    [
        lambda p: replace(p, batch_sizes=(16,)),
        lambda p: replace(p, data=replace(p.data, samples=21)),
        lambda p: replace(p, data=replace(p.data, seed=1)),
        lambda p: replace(p, corruptions=("contrast",)),
        lambda p: with_settings(p, ["*.lr=0.5"]),
    ],
)
def test_any_setting_changes_the_key(plan, change):
    before = {cell.key for cell in plan.cells()}
    assert before.isdisjoint(cell.key for cell in change(plan).cells())


def test_settings_reach_every_option_and_refuse_wrong_ones(plan):
    changed = with_settings(plan, ["dasp.delta=0.03", "dasp.variant=paper", "*.steps=2"])
    assert changed.methods["dasp"].options["delta"] == 0.03
    assert changed.methods["dasp"].options["variant"] == "paper"
    assert all(entry.options["steps"] == 2 for entry in changed.methods.values())
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
    with pytest.raises(OptionError, match="did you mean 'Mine'"):
        with_methods(plan, [f"{SMALL}:Mne"])
    with pytest.raises(DaspError, match="not a subclass"):
        with_methods(plan, [f"{SMALL}:build"])
    with pytest.raises(OptionError, match="no file"):
        with_methods(plan, ["nowhere.py:Mine"])


def test_plans_from_files(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(
        'models = ["sounding_shapes_0"]\nseverities = [1, 3]\n[data]\nsamples = 8\n'
        '[methods.a]\nmethod = "dasp"\ndelta = 0.1\n[methods.tent]\n'
    )
    plan = load_plan(path)
    assert plan.methods == {"a": Entry("dasp", {"delta": 0.1}), "tent": Entry("tent")}
    assert plan.severities == (1, 3)
    assert plan.data.samples == 8


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"modles": []}, "did you mean 'models'"),
        ({"kind": "stream"}, "did you mean 'streams'"),
        ({"data": {"sample": 1}}, "did you mean 'samples'"),
    ],
)
def test_wrong_keys_name_the_nearest(content, message):
    with pytest.raises(OptionError, match=message):
        plan_from(content, "mine.toml")


def test_unknown_and_damaged_plans(tmp_path):
    with pytest.raises(OptionError, match="did you mean 'quick'"):
        load_plan("quik")
    with pytest.raises(OptionError, match="no plan at"):
        load_plan(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("models = [")
    with pytest.raises(OptionError, match="not valid TOML"):
        load_plan(tmp_path / "bad.toml")


def test_wrong_protocols_and_models_are_refused_before_anything_runs(plan):
    with pytest.raises(OptionError, match="did you mean 'interleaved'"):
        replace(plan, protocols=("interleave",)).cells()
    with pytest.raises(OptionError, match="unknown pretrained model"):
        replace(plan, models=("sounding_shape",)).cells()


def test_tuning_uses_other_data_and_the_same_rates_for_all(plan):
    wide = tuning_plan(plan, ("interleaved",))
    assert wide.data.split == "validation"
    assert wide.data.seed != plan.data.seed
    rates = [s["lr"] for s in grid("dasp")]
    assert [s["lr"] for s in grid("tent")] == rates
    assert {s["lr"] for s in grid("eata")} == set(rates)
    assert len(wide.methods) == 1 + 2 * len(rates)
