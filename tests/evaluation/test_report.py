"""Tables and comparison pictures of an evaluation say what they claim to."""

import pytest
import torch
from matplotlib.axes import Axes

import firm
from firm.data import Images
from firm.evaluation import Evaluation, NamedMethod, plain_methods
from firm.evaluation import run as run_module
from firm.evaluation.report import comparison, summarize

SIZE = 32


def constant(label, value, sizes=None):
    """A method that restores every image as one gray, and notes the sizes of its batches."""

    def run(op, y, sigma, generator):
        if sizes is not None:
            sizes.append(len(y))
        return torch.full_like(op.A_adjoint(y), value)

    return NamedMethod(label, run)


@pytest.fixture
def evaluation():
    pixels = torch.randint(0, 256, (3, 3, SIZE, SIZE), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    return Evaluation(Images(pixels, ["a.png", "b.png", "c.png"]), [firm.Task("denoising", SIZE)], device="cpu")


def test_the_seconds_of_a_table_are_the_median_over_the_images():
    """The first image of a run takes longer, and must not count for more than one."""
    rows = [
        {"task": "denoising", "method": "mine", "psnr": psnr, "nfe": 2, "fingerprint": "", "peak_mb": mb, "seconds": s}
        for psnr, mb, s in ((20.0, 5, 90.0), (24.0, 7, 1.0), (25.0, 6, 2.0))
    ]
    values = summarize(rows)["denoising"]["mine"]
    assert (values["seconds"], values["psnr"], values["peak_mb"]) == (2.0, 23.0, 7)


def test_the_error_map_is_that_of_the_last_method(evaluation, tmp_path, monkeypatch):
    maps, titles, imshow, set_title = [], [], Axes.imshow, Axes.set_title

    def noted(self, values, *args, cmap=None, **kwargs):
        if cmap == "magma":
            maps.append(torch.from_numpy(values))
        return imshow(self, values, *args, cmap=cmap, **kwargs)

    monkeypatch.setattr(Axes, "imshow", noted)
    monkeypatch.setattr(Axes, "set_title", lambda self, text, **kw: titles.append(text) or set_title(self, text, **kw))
    methods = [*plain_methods(), constant("dark", -0.5), constant("light", 0.5)]
    comparison(evaluation, evaluation.tasks[0], methods, 2, tmp_path / "denoising.png")
    truth = evaluation.images.batch(range(2))
    torch.testing.assert_close(torch.stack(maps), (0.5 - truth).abs().mean(1))
    assert titles == ["truth", "measurement", "data-consistency", "dark", "light", "|error| of light"]
    assert (tmp_path / "denoising.png").stat().st_size > 1000


def test_pictures_are_restored_in_batches_too(evaluation, tmp_path, monkeypatch):
    sizes = []
    comparison(evaluation, evaluation.tasks[0], [constant("gray", 0.0, sizes)], 3, tmp_path / "a.png", batch_size=2)
    assert sizes == [1, 1, 1]  # as `evaluate` on a CPU
    on_gpu = Evaluation(evaluation.images, evaluation.tasks, device="cuda")
    assert list(run_module.chunks(on_gpu, range(3), 2)) == [range(2), range(2, 3)]
    monkeypatch.setattr("firm.evaluation.report.chunks", lambda e, rows, batch: run_module.chunks(on_gpu, rows, batch))
    sizes.clear()
    comparison(evaluation, evaluation.tasks[0], [constant("gray", 0.0, sizes)], 3, tmp_path / "b.png", batch_size=2)
    assert sizes == [2, 1]
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()
