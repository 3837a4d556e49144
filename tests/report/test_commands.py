from dasp.report.commands import publish, report


def test_report_writes_everything(results, save_results, tmp_path, capsys):
    save_results(results, tmp_path / "results")
    assert report(tmp_path / "results", out=tmp_path / "out", title="Mine") == 0
    assert "<h1>Mine</h1>" in (tmp_path / "out" / "report.html").read_text()
    assert (tmp_path / "out" / "tables" / "main.md").is_file()
    assert (tmp_path / "out" / "figures" / "overview.svg").is_file()
    assert "report.html" in capsys.readouterr().out


def test_a_damaged_file_is_told_of(make, save_results, tmp_path, capsys):
    save_results([make()], tmp_path)
    (tmp_path / "bad.json").write_text("{")
    assert report(tmp_path) == 1
    assert "bad.json" in (tmp_path / "report.html").read_text()
    assert "bad.json" in capsys.readouterr().out


def test_the_summary_keeps_to_the_plans_just_run(make, save_results, save_plan, tmp_path, capsys):
    mine, other = make("dasp"), make("tent")
    save_results([mine, other], tmp_path)
    path = tmp_path / f"{mine['key']}.json"
    save_plan(tmp_path, "mine", [path.name])
    assert publish(tmp_path, tmp_path, only=[path]) == 0
    told = capsys.readouterr().out
    assert "Plan mine" in told
    assert "Other runs" not in told
    assert "Other runs" in (tmp_path / "report.html").read_text()
