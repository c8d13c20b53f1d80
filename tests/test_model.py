import json

import pytest
import safetensors.torch
import torch

import firm
from firm._model_file import FORMAT, signed
from firm.operators import Identity

TINY = dict(side=16, ch=8, mult=(1, 2), blocks=1, groups=4, attention=(8,))


def tiny_model(**settings):
    net = firm.UNet(1, **{**TINY, **settings})
    for p in net.parameters():
        p.data = 0.2 * torch.randn(p.shape)
    return firm.Firm(net, firm.Solver(K=3, rho=0.02, beta=0.4, output="correction"), {"trained_for": ["denoising"]})


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "model.safetensors"
    tiny_model().save(path)
    return path


def rewrite(path, change):
    """Save the file again with its metadata changed, and the digest of that."""
    with safetensors.safe_open(path, framework="pt") as file:
        about = json.loads(file.metadata()["firm"])
    del about["digest"]
    weights = safetensors.torch.load_file(path)
    change(about, weights)
    safetensors.torch.save_file(weights, path, metadata={"firm": signed(json.dumps(about), weights)})


def test_saves_and_loads_everything(tmp_path):
    model = tiny_model()
    model.save(tmp_path / "new folder" / "model.safetensors")
    loaded = firm.load(tmp_path / "new folder" / "model.safetensors")
    assert loaded.solver == model.solver
    assert loaded.card == model.card
    assert loaded.estimator.config == model.estimator.config
    assert not loaded.training
    y = torch.randn(1, 1, 16, 16)
    a, b = (firm.restore(m, Identity(), y).image for m in (model, loaded))
    assert torch.equal(a, b)


@pytest.mark.parametrize("load", [firm.load, firm.load_network])
def test_a_model_is_loaded_where_one_asks_for_it(saved, load):
    for device, where in ((None, "cpu"), ("cpu", "cpu"), ("meta", "meta"), (torch.device("meta"), "meta")):
        model = load(saved, device=device)
        assert {p.device.type for p in (*model.parameters(), *model.buffers())} == {where}
    own = load(saved, firm.UNet(1, **TINY).to("meta"))  # None is the CPU, wherever one's own network was
    assert {p.device.type for p in own.parameters()} == {"cpu"}


def test_half_precision_files_are_half_as_large(tmp_path):
    model = tiny_model()
    model.save(tmp_path / "full.safetensors")
    model.save(tmp_path / "half.safetensors", dtype=torch.float16)
    sizes = [(tmp_path / f"{name}.safetensors").stat().st_size for name in ("full", "half")]
    assert sizes[1] < 0.6 * sizes[0]
    weights = firm.load(tmp_path / "half.safetensors").estimator.state_dict()
    for key, value in model.estimator.state_dict().items():
        assert weights[key].dtype == torch.float32
        torch.testing.assert_close(weights[key], value, rtol=1e-3, atol=1e-4)


def test_a_failed_save_leaves_the_old_file(saved, monkeypatch):
    before = saved.read_bytes()
    monkeypatch.setattr("os.fsync", lambda fd: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        tiny_model().save(saved)
    assert saved.read_bytes() == before
    assert [p.name for p in saved.parent.iterdir()] == [saved.name]


@pytest.mark.parametrize("keep", [0, 5, 100, -1])
def test_a_damaged_file(saved, keep):
    saved.write_bytes(saved.read_bytes()[:keep])
    with pytest.raises(ValueError, match=r"model\.safetensors cannot be read as safetensors: damaged"):
        firm.load(saved)


def test_a_foreign_file(saved, tmp_path):
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\r\n" * 50)
    with pytest.raises(ValueError, match="cannot be read as safetensors"):
        firm.load(tmp_path / "picture.png")
    safetensors.torch.save_file({"w": torch.zeros(3)}, tmp_path / "other.safetensors")
    with pytest.raises(ValueError, match="not of a FIRM model"):
        firm.load(tmp_path / "other.safetensors")


def test_a_newer_file(saved):
    rewrite(saved, lambda about, weights: about.update(format=FORMAT + 1))
    with pytest.raises(
        ValueError, match=rf"format {FORMAT + 1}, newer than this library reads \({FORMAT}\): update firm"
    ):
        firm.load(saved)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda about, weights: about.pop("solver"), "metadata is incomplete"),
        (lambda about, weights: about["solver"].pop("K"), "metadata is incomplete"),
        (lambda about, weights: weights.pop("stem.conv.weight"), "weights do not fit UNet"),
        (lambda about, weights: about["config"].update(ch=16), "weights do not fit UNet"),
        (lambda about, weights: about["config"].update(ch="x"), "network settings are not valid"),
        (lambda about, weights: about["config"].update(width=3), "network settings are not valid"),
        (lambda about, weights: about.update(estimator="Mine"), r"network class 'Mine': name it"),
    ],
)
def test_an_inconsistent_file(saved, change, message):
    rewrite(saved, change)
    with pytest.raises(ValueError, match=message):
        firm.load(saved)


def test_a_missing_model():
    """The message names the bundled models that restore images."""
    known = r"neither a file nor a bundled model \(cat-256, face-128, photo\)"
    with pytest.raises(FileNotFoundError, match=f"no model 'face-12': {known}"):
        firm.load("face-12")


class Mine(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.gain = torch.nn.Parameter(torch.tensor([0.7]))

    def forward(self, x, x_t, t):
        return self.gain * x


def test_a_network_class_of_the_users_own(tmp_path):
    firm.Firm(Mine()).save(tmp_path / "mine.safetensors")
    fresh = Mine()
    fresh.gain.data.zero_()
    assert float(firm.load(tmp_path / "mine.safetensors", estimator=fresh).estimator.gain) == pytest.approx(0.7)


def test_restore_gives_samples_their_mean_and_standard_deviation():
    model, y = tiny_model(), torch.randn(2, 1, 16, 16)
    one = firm.restore(model, Identity(), y, steps=2)
    many = firm.restore(model, Identity(), y, steps=2, samples=4)
    assert many.samples.shape == (4, 2, 1, 16, 16)
    torch.testing.assert_close(one.image, many.image)
    assert one.std is None
    torch.testing.assert_close(many.mean, many.samples.mean(0))
    torch.testing.assert_close(many.std, many.samples.std(0))
    assert float(many.std.mean()) > 0
    assert (one.nfe, many.nfe) == (6, 24)  # N K, S N K
    assert one.seconds > 0
    assert torch.equal(many.samples, firm.restore(model, Identity(), y, steps=2, samples=4, seed=0).samples)
    assert not torch.equal(one.image, firm.restore(model, Identity(), y, steps=2, seed=1).image)
    with pytest.raises(ValueError, match="samples must be a whole number of at least 1"):
        firm.restore(model, Identity(), y, samples=0)


def test_the_noise_level_goes_to_networks_that_take_it():
    y = torch.randn(2, 1, 16, 16)
    knows = tiny_model(noise_level=True)
    a, b = (firm.restore(knows, Identity(), y, sigma=s).image for s in (0.1, torch.tensor([0.1, 0.3])))
    torch.testing.assert_close(a[0], b[0])
    assert not torch.allclose(a[1], b[1])
    with pytest.raises(ValueError, match="needs sigma"):
        firm.restore(knows, Identity(), y)
    plain = tiny_model()
    assert torch.equal(firm.restore(plain, Identity(), y, sigma=0.1).image, firm.restore(plain, Identity(), y).image)


def test_a_model_without_the_solver_is_flow_only():
    net = tiny_model().estimator
    x_t, y = torch.randn(2, 1, 1, 16, 16)
    model = firm.Firm(net, firm.Solver(K=0))
    torch.testing.assert_close(
        model.posterior_mean(Identity(), x_t, 0.3, y), firm.flow_only(net, Identity(), x_t, 0.3, y)
    )
    assert model.calls(4) == 4


@pytest.mark.parametrize("wrong", [{"K": -1}, {"rho": 0.0}, {"beta": 2.0}, {"output": "image"}])
def test_solver_settings_are_checked(wrong):
    with pytest.raises(ValueError, match="need K >= 0, rho > 0"):
        firm.Solver(**wrong)
