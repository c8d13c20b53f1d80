"""Tasks whose measurements are not A x + noise with a linear A."""

import pytest
import torch
from helpers import Watch, rand, tiny_model
from PIL import Image

import firm
from firm.acceleration.graphs import structure
from firm.operators import JPEG, Clipping, Magnitude, data_consistency
from firm.operators.jpeg import error_level, quality_tables
from firm.restoration import Problem
from firm.tasks import Rows

TASKS = {
    "clipping": {"white": 0.2, "black": -0.6},
    "jpeg": {"jpeg_quality": 15},
    "phase-retrieval": {},
}


def images(batch=2, side=32):
    coarse = rand(batch, 3, 5, 5) * 2 - 1
    return torch.nn.functional.interpolate(coarse, side, mode="bilinear", align_corners=True)


@pytest.mark.parametrize("name", TASKS)
def test_a_measurement_follows_from_seed_and_number(name):
    task, x = firm.Task(name, 32, **TASKS[name]), images()
    op, y = task.measure(x, seed=1, index=5)
    _, alone = task.measure(x[1:], seed=1, index=6)
    assert not op.linear
    torch.testing.assert_close(y[1:], alone)
    assert op.A_adjoint(y).shape == x.shape
    kind = {"clipping": Clipping, "jpeg": JPEG, "phase-retrieval": Magnitude}[name]
    assert isinstance(op, kind)


def test_saturated_pixels_stay_so_under_noise():
    task, x = firm.Task("clipping", 32, white=0.0, sigma=0.05), images()
    _, y = task.measure(x)
    assert y.max() == 0
    assert (y[x > 0.3] == 0).all()  # six standard deviations above
    assert 0.03 < (y - x)[(x < -0.3) & (x > -0.7)].std() < 0.07
    with pytest.raises(ValueError, match="black must be below white"):
        firm.Task("clipping", 32, white=[0.1, 0.5], black=0.2)


def test_a_jpeg_has_no_noise_and_the_level_of_its_tables():
    task, x = firm.Task("jpeg", 32, jpeg_quality=[5, 95]), images(4)
    torch.manual_seed(0)
    op, y, sigma = task.draw(x, Rows(4, 0, 4))
    torch.testing.assert_close(op.A(x), y)
    torch.testing.assert_close(sigma, error_level(op.luma[:, 0, 0]))
    assert sigma.unique().numel() == 4
    luma, _ = quality_tables(torch.tensor([15.0]))
    assert firm.Task("jpeg", 32, jpeg_quality=15).sigma == pytest.approx(float(error_level(luma)), abs=1e-4)
    assert firm.Task("jpeg", 32, sigma=0.03).sigma == 0.03
    told = firm.Task("jpeg", 32, sigma=0.03).draw(x, Rows(4, 0, 4))[2]
    torch.testing.assert_close(told, torch.full((4,), 0.03))


def test_turned_and_shifted_images_are_aligned_channel_by_channel():
    task, x = firm.Task("phase-retrieval", 32), images()
    moved = x.clone()
    moved[0] = moved[0].flip(-2, -1)
    moved[1, 2] = moved[1, 2].roll((3, -5), (0, 1))
    torch.testing.assert_close(task.aligned(moved, x), x)
    torch.testing.assert_close(firm.Task("denoising", 32).aligned(moved, x), moved)


def test_the_sample_of_least_misfit_is_the_image():
    op = Magnitude(firm.operators.Oversampled(2))
    x = images(2, 8)
    y = op.A(x)
    model = firm.Firm(Half(), firm.Solver(K=1))
    for keep in (True, False):
        seen = []
        r = firm.restore(
            model, op, y, 3, samples=4, keep=keep, sigma=0.01, on_sample=lambda i, x, seen=seen: seen.append(x)
        )
        misfit = torch.stack([(op.A(s) - y).square().sum((1, 2, 3)) for s in seen])
        assert (misfit.argmin(0) != 0).any()  # else the first would do
        for i, best in enumerate(misfit.argmin(0)):
            torch.testing.assert_close(r.image[i], seen[best][i])


class Half(torch.nn.Module):
    def forward(self, x, x_t, t):
        return 0.5 * x


def test_a_mixture_with_linear_tasks_trains(tmp_path):
    from firm.training.objectives import Batch

    tasks = [firm.Task(name, 16, **TASKS[name]) for name in TASKS] + [firm.Task("denoising", 16)]
    x, rows = images(8, 16), [Rows(2, 0, 2)] * 4
    op, y, sigma = Batch(x, torch.full((8,), 0.5), rows, tasks).measure()
    assert not op.linear
    net = firm.load(tiny_model(tmp_path / "m.safetensors", [])).requires_grad_(True)
    loss = firm.velocity_loss(net, op, x, y, torch.randn_like(x), torch.full((8,), 0.5), sigma=sigma)
    loss.backward()
    grads = [p.grad for p in net.parameters() if p.grad is not None]
    assert len(grads) > 5
    assert all(g.isfinite().all() for g in grads)


RANGES = {"clipping": {"white": [0.1, 0.5]}, "jpeg": {"jpeg_quality": [5, 95]}, "phase-retrieval": {}}


@pytest.mark.parametrize("name", TASKS)
def test_training_reads_nothing_from_the_device(name):
    """So that a step, operators and solves together, fits into a CUDA graph."""
    task, x = firm.Task(name, 32, **RANGES[name]), images(4)
    task.draw(x, Rows(4, 0, 4))  # what is made once
    with Watch() as watch:
        op, y, _ = task.draw(x, Rows(4, 0, 4))
        data_consistency(op, x, y, 0.01)
        op.project(x, y)
    assert not watch.waits()
    assert structure(op) is not None


@pytest.mark.parametrize("name", TASKS)
def test_a_clean_picture_is_degraded_and_restored(tmp_path, name):
    path = tmp_path / "a.png"
    Image.fromarray(((images()[0].permute(1, 2, 0) + 1) * 127.5).byte().numpy()).save(path)
    problem = Problem.simulated(path, name, TASKS[name])
    model = firm.load(tiny_model(tmp_path / "m.safetensors", []))
    r = firm.restore(model, problem.op, problem.y, 1, seed=3, sigma=problem.sigma)
    assert problem.scores(problem.finish(r.image))["psnr"] > 5
    if name == "jpeg":
        assert problem.op.excess(r.image, problem.y) < 1e-3


def test_a_jpeg_file_is_restored_within_its_cells(tmp_path):
    path = tmp_path / "a.jpg"
    Image.fromarray(((images(1, 40)[0].permute(1, 2, 0) + 1) * 127.5).byte().numpy()).save(path, quality=15)
    problem = Problem.from_file(path, "jpeg")
    assert problem.settings["sigma"] == pytest.approx(firm.Task("jpeg", 40, jpeg_quality=15).sigma, abs=1e-3)
    model = firm.load(tiny_model(tmp_path / "m.safetensors", []))
    r = firm.restore(firm.tiled(model), problem.op, problem.y, 1, sigma=problem.sigma, samples=3)
    for x in r.samples:
        assert problem.op.excess(x, problem.y) < 0.02
    assert not problem.notes  # that its compression is not undone
