"""Tasks with photon and camera noise: measuring, training, estimating, and the command line."""

import json
import math

import pytest
import torch
from helpers import call, rand, save_pictures, stirred, tells, tiny_model
from PIL import Image

import firm
from firm.noise import Gaussian, Noise, Poisson, PoissonGaussian
from firm.noise.estimates import fit_photons
from firm.tasks import BaseTask, Parameter, Rows
from firm.training.objectives import Batch

TASKS = {"poisson-denoising": 2 / 30, "camera-denoising": 0.01, "poisson-inpainting": 2 / 30}


def flat(side=256):
    """Smooth stripes of many brightnesses."""
    ramp = torch.linspace(-0.9, 0.7, side // 16).repeat_interleave(16)
    return ramp.expand(1, 3, side, side)


@pytest.mark.parametrize("name", TASKS)
def test_measurements_have_the_variance_of_the_model_and_do_not_depend_on_the_batch(name):
    task = firm.Task(name, 64)
    x = torch.linspace(-0.8, 0.8, 3)[:, None, None, None].expand(3, 3, 64, 64)
    op, y = task.measure(x, seed=1)
    seen = op.A(torch.ones(3, 3, 64, 64)) > 0
    for i in range(3):
        gain, read = torch.full((3,), TASKS[name]), torch.zeros(3)
        if name == "camera-denoising":
            gain, read = gain * torch.tensor([2.0, 1.0, 1.5]), 0.02 * torch.tensor([2.0, 1.0, 1.5])
        for c in range(3):
            values = (y - op.A(x))[i, c][seen[i, c]]
            expected = math.sqrt(gain[c] * (x[i, 0, 0, 0] + 1) + read[c] ** 2)
            assert float(values.std()) == pytest.approx(expected, rel=0.08)
    assert torch.equal(task.measure(x[1:2], seed=1, index=1)[1], y[1:2])
    assert not y[~seen].any()  # no light, no photons


def test_training_draws_each_sample_its_own_noise():
    task = firm.Task("poisson-denoising", 16, peak=[2, 200])
    x, rows = rand(64, 1, 16, 16) - 0.5, Rows(64, 0, 64)
    _, y, noise = task.draw(x, rows)
    peaks = 2 / noise.gain.flatten()
    assert peaks.min() < 10 < 80 < peaks.max()
    counts = (y + 1) * peaks.reshape(-1, 1, 1, 1) / 2
    torch.testing.assert_close(counts, counts.round(), rtol=0, atol=1e-2)
    spread = (y - x).square().mean((1, 2, 3)) / (noise.gain.flatten() * (x + 1).mean((1, 2, 3)))
    assert ((spread - 1).abs() < 0.5).all()


def test_a_mixture_of_tasks_has_the_noise_of_each_and_gaussian_ones_alone_have_levels():
    torch.manual_seed(0)
    tasks = [firm.Task("poisson-inpainting", 16), firm.Task("denoising", 16, sigma=[0.1, 0.2]),
             firm.Task("deblurring", 16, kernel_size=5)]  # fmt: skip
    rows = [Rows(2, 0, 2)] * 3
    batch = Batch(rand(6, 3, 16, 16) - 0.5, torch.full((6,), 0.5), rows, tasks)
    _, y, noise = batch.measure()
    assert isinstance(noise, Noise)
    level = noise.level(y)
    assert ((level[2:4] >= 0.1) & (level[2:4] <= 0.2)).all()
    assert level[4:].tolist() == pytest.approx([0.05] * 2)
    plain = Batch(batch.x_1[2:], batch.t[2:], rows[1:], tasks[1:])
    assert isinstance(plain.measure()[2], torch.Tensor)


def test_gradients_reach_a_network_through_every_task_of_a_mixture():
    torch.manual_seed(0)
    extra = ("previous", "context", "noise")
    net = stirred(firm.networks.ResUNet(3, widths=(8, 16), blocks=1, noise_level=True, extra=extra))
    model = firm.Firm(net, firm.Solver(K=2, output="correction"))
    tasks = [firm.Task(name, 16) for name in (*TASKS, "denoising")]
    batch = Batch(rand(8, 3, 16, 16) - 0.5, torch.full((8,), 0.5), [Rows(2, 0, 2)] * 4, tasks)
    op, y, noise = batch.measure()
    loss = firm.velocity_loss(model, op, batch.x_1, y, batch.randn(), batch.t, sigma=noise)
    loss.backward()
    gradients = [p.grad for p in net.parameters() if p.grad is not None]
    assert all(g.isfinite().all() for g in gradients)
    assert net.stem.conv.weight.grad[:, -3:].abs().sum() > 0  # of the image that says where it is how noisy


def test_noise_of_ones_own():
    class Map(BaseTask):
        noise_settings = ("sigma", "rise")
        rise = Parameter(float, "how much more noise there is below", 3.0, low=1, drawn="uniform")

        def build(self, values):
            return firm.operators.Identity()

        def noise(self, values, like):
            down = torch.linspace(0, 1, like.shape[-2], device=like.device)[:, None]
            factor = values["rise"].reshape(-1, 1, 1, 1) ** down
            return Gaussian(values["sigma"].reshape(-1, 1, 1, 1) * factor, check=False)

    task, x = Map(32, sigma=0.1), torch.zeros(1, 3, 32, 32)
    y = task.measure(x)[1]
    assert float(y[..., -4:, :].std() / y[..., :4, :].std()) == pytest.approx(3**0.9, rel=0.2)
    drawn = Map(32, rise=[1, 5]).draw(x.expand(4, -1, -1, -1), Rows(4, 0, 4))[2]
    assert len(drawn.sigma[:, 0, -1, 0].unique()) == 4


@pytest.mark.parametrize("peak", [10, 40, 300])
def test_the_peak_is_estimated(peak):
    y = firm.Task("poisson-denoising", 256, peak=peak).measure(flat())[1]
    found = fit_photons(y, read=False)
    assert 2 / found.gain == pytest.approx(peak, rel=0.1)
    assert abs(found.gain - 2 / peak) < 6 * found.gain_error
    assert Poisson.estimate(y).gain == pytest.approx(found.gain)


@pytest.mark.parametrize(("gain", "read"), [(0.01, 0.05), (0.03, 0.1), (0.002, 0.02)])
def test_gain_and_read_noise_are_estimated(gain, read):
    x = flat(384)
    y = PoissonGaussian(gain, read).draw(x, torch.Generator().manual_seed(0))
    found = fit_photons(y)
    assert found.gain == pytest.approx(gain, rel=0.25)
    assert found.sigma == pytest.approx(read, rel=0.25)
    assert abs(found.gain - gain) < 5 * found.gain_error
    assert PoissonGaussian.estimate(y).sigma == pytest.approx(found.sigma)
    assert Gaussian.estimate(y).sigma > 0.5 * read


def test_noise_that_is_not_that_of_photons_is_refused():
    y = flat() + 0.1 * torch.randn(1, 3, 256, 256) * (1 - flat()).sqrt()  # more in the dark
    with pytest.raises(ValueError, match="does not grow with its brightness"):
        fit_photons(y, read=True)
    with pytest.raises(ValueError, match="too few smooth parts"):
        fit_photons(flat(32))


def test_the_command_line_takes_photons(tmp_path):
    model = tiny_model(tmp_path / "model.safetensors", [{"name": "poisson-denoising", "peak": [5, 100]}])
    y = firm.Task("poisson-denoising", 256, peak=40).measure(flat())[1].clamp(-1, 1)
    picture, gray = tmp_path / "y.png", tmp_path / "gray.png"
    pixels = ((y[0].permute(1, 2, 0) + 1) * 127.5).round().byte().numpy()
    Image.fromarray(pixels).save(picture)
    Image.fromarray(pixels[:, :, 0]).save(gray)
    result = call("restore", picture, "--task", "poisson-denoising", "--model", model, "--out", tmp_path / "out")
    row = json.loads((tmp_path / "out" / "restore.json").read_text())[0]
    assert row["peak"] == pytest.approx(40, rel=0.2)
    assert 0 < row["peak_error"] < 10
    assert row["estimated"]
    assert "peak " in result.output
    call("restore", gray, "--task", "poisson-denoising", "--peak", 40, "--model", model, "--out", tmp_path / "gray")
    call(
        "restore", picture, "--simulate", "camera-denoising", "--gain", 0.02, "--model", model, "--out", tmp_path / "c"
    )
    tells("sigma does not belong to poisson-denoising: give peak", "restore", picture, "--task", "poisson-denoising",
          "--sigma", 0.1)  # fmt: skip
    tells("gain", "restore", picture, "--simulate", "camera-denoising", "--gain", 0)


def test_training_and_evaluation_take_photons(tmp_path):
    pictures = save_pictures(tmp_path / "pictures", 6)
    mixture = "[{name: poisson-denoising, peak: [5, 100]}, {name: camera-denoising}, {name: denoising}]"
    network = "{class: ResUNet, widths: [8, 16], blocks: 1, noise_level: true, extra: [noise]}"
    (tmp_path / "run.yaml").write_text(
        f"mixture: {mixture}\nnetwork: {network}\ndataset: folder\nsize: 16\nK: 2\nbatch_size: 6\nepochs: 1\n"
        "steps_per_epoch: 2\nval_images: 2\nval_steps: [1]\nwarm_start_epochs: 0\n"
    )
    call("train", tmp_path / "run.yaml", f"data={pictures}", f"out={tmp_path / 'run'}")
    call("evaluate", tmp_path / "run", "--dataset", "folder", "--data", pictures, "--tasks", "poisson-denoising",
         "--steps", 1, "--limit", 2, "--out", tmp_path / "evaluated")  # fmt: skip
    assert (tmp_path / "evaluated").is_dir()
    tells("noise_level: true", "train", tmp_path / "run.yaml", f"data={pictures}", f"out={tmp_path / 'b'}",
          "network={class: ResUNet, widths: [8, 16], blocks: 1}")  # fmt: skip
