from dasp.report.export import export_tables


def test_every_table_three_times(results, tmp_path):
    written = export_tables(results, tmp_path)
    names = {path.stem for path in written}
    assert names >= {"main", "diagnosis", "cost", "by-corruption-per_domain-video"}
    assert len(written) == 3 * len(names)
    assert {path.suffix for path in written} == {".csv", ".md", ".tex"}
    assert "dasp" in (tmp_path / "main.csv").read_text()


def test_settings_do_not_overwrite_each_other(make, tmp_path):
    written = export_tables([make(), make(severity=3), make(samples=64)], tmp_path)
    assert len(set(written)) == len(written)
    assert len({path.parent for path in written}) == 3
    assert all(path.is_file() for path in written)
