"""Each tracker's own reader finds what was sent to it."""

import pytest

import dasp
from dasp.cli.main import main
from dasp.core.errors import OptionError
from dasp.service.loggers import open_logger, outcome_figures

ROOT_RESULTS = "results/sound"


@pytest.fixture
def log(tmp_path, toy, batches):
    tta = dasp.adapt(toy, "dasp", log=tmp_path / "stream" / "events.jsonl")
    for batch in batches:
        tta(batch)
    tta({"audio": batches[0]["audio"]})
    return tmp_path / "stream" / "events.jsonl"


def logged(log):
    return [event for event in dasp.events.read(log) if event["event"] == "batch"]


def scores(log):
    return [event["scores"]["audio"] for event in logged(log)]


def times(log):
    return [event["time"] for event in logged(log)]


def test_tensorboard(log, tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    assert main(["log", str(log), "--folder", str(tmp_path / "runs")]) == 0
    found = EventAccumulator(str(tmp_path / "runs" / "stream"))
    found.Reload()
    said = found.Scalars("score/audio")
    assert [one.value for one in said] == pytest.approx(scores(log))
    assert [one.wall_time for one in said] == pytest.approx(times(log), abs=1e-3)
    absent = [one.value for one in found.Scalars("missing/video")]
    assert absent == [0.0] * (len(absent) - 1) + [1.0]
    assert {"biased/audio", "norm/video", "updated"} <= set(found.Tags()["scalars"])


@pytest.mark.filterwarnings("ignore")
def test_mlflow(log, tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    words = ["log", str(log), "--to", "mlflow", "--folder", str(tmp_path / "runs")]
    assert main(words) == 0
    client = mlflow.MlflowClient((tmp_path / "runs").as_uri())
    (run,) = client.search_runs([client.get_experiment_by_name("dasp").experiment_id])
    assert run.data.params["method"] == "dasp"
    assert run.info.status == "FINISHED"
    history = client.get_metric_history(run.info.run_id, "score/audio")
    assert [one.value for one in history] == pytest.approx(scores(log))
    assert [one.timestamp / 1000 for one in history] == pytest.approx(times(log), abs=2e-3)


def leveldb_records(data, block=32768):
    """Yield the records of a .wandb file, a log of LevelDB after seven bytes of header."""
    place, whole = 7, b""
    while place + 7 <= len(data):
        left = block - place % block
        if left < 7:
            place += left
            continue
        length, kind = int.from_bytes(data[place + 4 : place + 6], "little"), data[place + 6]
        whole += data[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # complete, or the last part
            yield whole
            whole = b""


@pytest.mark.filterwarnings("ignore")
def test_wandb_offline(log, tmp_path, monkeypatch):
    pytest.importorskip("wandb")
    from wandb.proto import wandb_internal_pb2

    for name in ("WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "WANDB_DATA_DIR"):
        monkeypatch.setenv(name, str(tmp_path / "wandb_own"))
    monkeypatch.setenv("WANDB_SILENT", "true")
    words = ["log", str(log), "--to", "wandb", "--folder", str(tmp_path / "runs")]
    assert main(words) == 0
    (file,) = (tmp_path / "runs").rglob("*.wandb")
    found = {"score/audio": [], "_timestamp": []}
    for data in leveldb_records(file.read_bytes()):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        for item in record.history.item:
            for name in found.keys() & {item.key, *item.nested_key}:
                found[name].append(float(item.value_json))
    assert found["score/audio"] == pytest.approx(scores(log))
    assert found["_timestamp"] == pytest.approx(times(log), abs=1e-3)


def test_live_figures_and_results_of_a_benchmark(toy, batches, tmp_path, pytestconfig):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    tta = dasp.adapt(toy, "dasp")
    with open_logger("tensorboard", tmp_path, "live", {"lr": 1e-3}) as logger:
        for step, batch in enumerate(batches):
            logger.log(step, outcome_figures(tta(batch)))
    found = EventAccumulator(str(tmp_path / "live"))
    found.Reload()
    assert len(found.Scalars("loss")) + len(found.Scalars("updated")) > len(batches)
    with pytest.raises(OptionError, match="did you mean 'wandb'"):
        open_logger("wandbb", tmp_path, "x")
    results = pytestconfig.rootpath / ROOT_RESULTS
    assert main(["log", str(results), "--folder", str(tmp_path / "bench")]) == 0
    runs = list((tmp_path / "bench").iterdir())
    assert len(runs) == dasp.results(results)[["plan", "label", "key"]].drop_duplicates().shape[0]
    found = EventAccumulator(str(runs[0]))
    found.Reload()
    assert 0 < found.Scalars("mean_accuracy")[0].value < 100
    assert main(["log", str(tmp_path / "nowhere")]) == 2
