import numpy as np
import pytest
import soundfile
import torch
import tyro
from PIL import Image

import dasp
from dasp.cli import data as commands
from dasp.core.errors import DataError, OptionError
from dasp.data import Loader, open_manifest
from dasp.models import CavMae
from dasp.streams import Domain, domain_dataset


def run(command, *arguments):
    return tyro.cli(command, args=[str(argument) for argument in arguments])


@pytest.fixture
def videos(tmp_path, media):
    for number, name in enumerate(("cat/a", "cat/b", "dog/c", "dog/d")):
        media.write_video(tmp_path / "mp4" / f"{name}.mp4", 0.6, 300 + 100 * number)
    return tmp_path / "mp4"


def test_from_videos_to_batches_of_a_model(videos, tmp_path, capsys):
    root = tmp_path / "set"
    assert run(commands.prepare, videos, root) == 0
    assert run(commands.data_check, root) == 0
    assert "4 clips, 2 classes" in capsys.readouterr().out
    manifest = open_manifest(root)
    for name, modality in (("snow", "video"), ("wind", "audio"), ("gaussian_noise", "audio")):
        domain = Domain(modality, name, 3)
        live = list(Loader(domain_dataset(manifest, domain), 3))
        for workers in (1, 2):
            again = list(Loader(domain_dataset(manifest, domain), 3, workers))
            for ours, other in zip(live, again, strict=True):
                assert ours.ids == other.ids
                for key, value in ours.inputs.items():
                    assert torch.equal(value, other.inputs[key])
        assert live[0].inputs["audio"].shape == (3, 1024, 128)
        assert live[0].inputs["video"].shape == (3, 3, 224, 224)
    tta = dasp.adapt(CavMae(embed_dim=16, num_heads=2, depth=1, num_classes=2), "dasp", delta=1e-6)
    outcomes = [tta(batch.inputs) for batch in live]
    assert [len(outcome.logits) for outcome in outcomes] == [3, 1]
    assert outcomes[0].updated


def test_checksums_are_printed(tmp_path, media, capsys):
    root = media.write_folders(tmp_path / "pets")
    few = ["--modality", "audio", "--corruptions", "rain", "--severities", 1, 5]
    assert run(commands.data_checksum, root, *few) == 0
    ours = [line.split("  ") for line in capsys.readouterr().out.splitlines()]
    names = [name for _, name in ours]
    assert names == ["list", "video/clean", "audio/clean", "audio/rain/1", "audio/rain/5"]
    assert run(commands.data_checksum, root, *few, "--seed", 1) == 0
    theirs = [line.split("  ") for line in capsys.readouterr().out.splitlines()]
    assert [a == b for a, b in zip(ours, theirs, strict=True)] == [True] * 3 + [False] * 2


def test_the_preview_shows_every_corruption(tmp_path, media):
    root = media.write_folders(tmp_path / "pets")
    assert run(commands.preview, root, "--clip", "dog/dog1", "--out", tmp_path) == 0
    for name, rows in (("frames", 15), ("sounds", 6)):
        with Image.open(tmp_path / f"preview-{name}.png") as sheet:
            assert sheet.size == (150 + 6 * 166, 68 + rows * 166)
            pixels = np.array(sheet.convert("RGB"))
        cells = {
            pixels[68 + row * 166 :, 150 + column * 166 :][:160, :160].tobytes()
            for row in range(rows)
            for column in range(6)
        }
        assert len(cells) == 1 + 5 * rows  # the clean one is the same in each row
    with pytest.raises(OptionError, match="unknown clip 'dgo'"):
        run(commands.preview, root, "--clip", "dgo", "--out", tmp_path)


def test_bad_trees_give_a_bad_exit_code_and_the_names(videos, tmp_path, capsys):
    root = tmp_path / "set"
    (videos / "cat" / "b.mp4").write_bytes((videos / "cat" / "b.mp4").read_bytes()[:2000])
    assert run(commands.prepare, videos, root) == 1
    out = capsys.readouterr().out
    assert "b.mp4 is truncated" in out
    assert out.count("b.mp4") == 1
    (root / "audio" / "a.wav").unlink()
    soundfile.write(root / "audio" / "c.wav", np.zeros((44100, 2)), 44100)
    soundfile.write(root / "audio" / "d.wav", np.zeros(0), 16000)
    Image.new("P", (32, 32)).save(root / "video" / "frame_5" / "d.jpg", "PNG")
    assert run(commands.data_check, root) == 1
    printed = capsys.readouterr().out
    for expected in (
        "problems    4",
        f"no sound {root / 'audio' / 'a.wav'}",
        "c.wav has 44100 Hz and 2 channel(s)",
        "d.wav has 0 samples",
        "d.jpg has colour mode P",
    ):
        assert expected in printed


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--severities 6", r"severity of .* must be 1 to 5, not 6"),
        ("--corruptions earthquake", "unknown"),
        ("--seed -1", "seed must be"),
        ("--count 0", r"count, .* at least 1, not 0"),
        ("--workers -2", r"workers must be 0 .* not -2"),
    ],
)
def test_impossible_wishes_are_refused(tmp_path, media, words, message):
    root = media.write_folders(tmp_path / "pets")
    with pytest.raises(OptionError, match=message):
        run(commands.data_checksum, root, *words.split())


def test_a_preview_that_fails_leaves_the_old_pair(tmp_path, media):
    root = media.write_folders(tmp_path / "pets")
    for name in ("frames", "sounds"):
        (tmp_path / f"preview-{name}.png").write_text("old")
    (root / "cat" / "cat0.wav").write_bytes(b"")
    with pytest.raises(DataError, match=r"cat0\.wav"):
        run(commands.preview, root, "--out", tmp_path)
    assert [p.read_text() for p in sorted(tmp_path.glob("*.png"))] == ["old", "old"]


def test_prepare_tells_what_was_made_again_and_what_was_not_used(videos, tmp_path, media, capsys):
    root = tmp_path / "set"
    media.write_video(videos / "top.mp4")
    assert run(commands.prepare, videos, root) == 0
    assert f"{videos / 'top.mp4'}: not used" in capsys.readouterr().out
    media.write_video(videos / "cat" / "a.mp4", 0.8, 900)
    assert run(commands.prepare, videos, root) == 0
    out = capsys.readouterr().out
    assert "1 clips made (1 of them again, as the video was replaced), 3 kept, 0 failed." in out


def test_the_built_in_set_is_drawn_under_every_corruption_of_its_sensors(
    tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr("dasp.streams.preview.SEVERITIES", (5,))
    with pytest.raises(OptionError, match="number of a sample of the built-in set, not cat"):
        run(commands.preview, "--clip", "cat")
    assert run(commands.preview, "--clip", 1, "--out", tmp_path) == 0
    printed = capsys.readouterr().out.splitlines()
    sheets = {path.rsplit("-", 1)[1]: np.array(Image.open(path)) for path in printed}
    assert list(sheets) == ["frames.png", "sounds.png", "depths.png"]
    frames, sounds, depths = sheets.values()
    assert len(frames) > len(sounds) == len(depths)  # 15 rows, 6 and 6
    assert len(np.unique(depths.reshape(-1, 3), axis=0)) > 100
