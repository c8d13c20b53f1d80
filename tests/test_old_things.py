"""What older versions wrote: models, configurations, and runs that were stopped."""

import lzma
from pathlib import Path

import pytest
import torch
import yaml
from helpers import save_pictures
from typer.testing import CliRunner

import firm
from firm._util.distributed import Ranks
from firm.cli import app
from firm.training.config import ConfigError, load_config
from firm.training.logs import read_log
from firm.training.loop import train

HERE = Path(__file__).parent
CONFIGS = sorted((HERE.parent / "configs").rglob("*.yaml"))
RANK = Ranks(0, 1, torch.device("cpu"))


def test_the_bundled_models_load():
    assert firm.bundled() == ["cat-256", "face-128", "photo", "toy"]
    cat, face, photo, toy = (firm.load(name) for name in firm.bundled())
    assert sum(p.numel() for p in face.estimator.parameters()) == pytest.approx(8.2e6, rel=0.01)
    assert [e["name"] for e in face.card["trained_for"]][:2] == ["denoising", "deblurring"]
    assert not face.training
    assert photo.estimator.config["extra"] == ("previous", "context", "iteration")
    assert {e["name"] for e in photo.card["trained_for"]} >= {"denoising", "motion-deblurring", "stroke-inpainting"}
    assert (cat.card["size"], cat.card["name"]) == (256, "cat-256")
    assert {e["name"] for e in cat.card["trained_for"]} >= {"fourier", "box-inpainting"}
    assert type(toy.estimator).__name__ == "MLP"


def test_there_are_configurations():
    assert {p.stem for p in CONFIGS} >= {"compact", "face-128", "afhq", "afhq-deblurring", "celeba"}


@pytest.mark.parametrize("path", CONFIGS, ids=lambda p: p.stem)
def test_every_configuration_loads_and_tells_what_it_needs(path):
    config = load_config(path)
    assert config.make_tasks()
    done = CliRunner().invoke(app, ["train", str(path), "data=nowhere", "--dry-run"])
    assert done.exit_code == 0, done.output
    settings = yaml.safe_load(done.output)
    assert settings["data"] == "nowhere"
    assert settings["size"] == config.size
    net = {"celeba": 34_474_531, "afhq": 59_918_883, "afhq-deblurring": 239_412_291}
    if path.stem in net:
        assert f"# parameters: {net[path.stem]:,}" in done.output


@pytest.fixture
def old_run(tmp_path):
    """A run of commit 220285f, stopped after 5 steps: a mixture, balanced; and its pictures."""
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)
    (tmp_path / "pictures").mkdir()
    save_pictures(tmp_path / "pictures", 12, (12, 12))
    source = HERE / "training" / "old_run"
    packed = (source / "step_000000005.pt.xz").read_bytes()
    (tmp_path / "run" / "checkpoints" / "step_000000005.pt").write_bytes(lzma.decompress(packed))
    (tmp_path / "run" / "config.yaml").write_text((source / "config.yaml").read_text())
    return tmp_path


def test_a_run_of_an_older_version_goes_on_to_its_numbers(old_run):
    settings = [f"data={old_run / 'pictures'}", f"out={old_run / 'run'}", "epochs=3"]
    config = load_config(old_run / "run" / "config.yaml", settings)
    assert not {"crop", "pairing", "mapped"} & yaml.safe_load((old_run / "run" / "config.yaml").read_text()).keys()
    result = train(config, RANK, progress=False)
    assert (result["steps_now"], result["step"]) == (10, 15)
    losses = [(row["loss"], row["norm"], row["error"]) for row in read_log(old_run / "run")]
    older = [(0.646085, 0.601258, 4.389637), (0.611465, 0.433900, 3.899103)]  # as that version went on
    assert losses == [pytest.approx(row, rel=1e-4) for row in older]
    weights = firm.load(old_run / "run" / "model.safetensors").estimator.state_dict()
    assert float(weights["head.conv.weight"].double().abs().sum()) == pytest.approx(0.005724, abs=2e-6)


def test_other_settings_do_not_take_an_older_run_over(old_run):
    common = [f"data={old_run / 'pictures'}", f"out={old_run / 'run'}"]
    for change, name in (("rate=1e-3", "rate"), ("crop=random", "crop"), ("flips=true", "flips"),
                         ("mixture=[{name: denoising}]", "mixture"), ("K=3", "K")):  # fmt: skip
        more = ["read_size=16"] if name == "crop" else []
        config = load_config(old_run / "run" / "config.yaml", [*common, change, *more])
        with pytest.raises(ConfigError, match=rf"other settings \([^)]*\b{name}\b"):
            train(config, RANK, progress=False)
