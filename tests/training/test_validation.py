"""Validation: a few images at a time on the network's device, and the best model kept."""

import pytest
import torch

import firm
from firm._util.machine import Ranks
from firm.data import Images
from firm.training import validation
from firm.training.trainer import Trainer

RANK = Ranks(0, 1, torch.device("cpu"))
TWO = "mixture=[{name: denoising}, {name: random-inpainting}]"
KINDS = {
    "velocity": [TWO, "val_steps=[1, 2]"],
    "unrolled": [TWO, "objective=unrolled", "network={phases: 1, features: 4}"],
    "bridge": ["mixture=[{name: random-inpainting}]", "objective=bridge"],
    "denoiser": ["task=denoising", "objective=denoiser", "network={widths: [4, 8], blocks: 1}"],
    "prior": ["objective=prior"],
}


LABELS = {
    "velocity": ["truth", "denoising: measurement", "FIRM N=1: ", "random-inpainting: measurement"],
    "denoiser": ["truth", "noisy, sigma = 0.2", "denoised: "],
    "prior": ["sample 1", "sample 12"],
}


@pytest.mark.parametrize("kind", LABELS)
def test_the_pictures_have_labels(kind, make_trainer, tmp_path, monkeypatch):
    drawn = []
    real = validation.sheet
    monkeypatch.setattr(validation, "sheet", lambda rows: drawn.extend(rows) or real(rows))
    images = Images(torch.zeros(3, 3, 16, 16), ["x"] * 3)
    make_trainer(*KINDS[kind]).validate(images, tmp_path / "grid.png")
    titles = [title for row in drawn for title, _ in row]
    for label in LABELS[kind]:
        assert any(title.startswith(label) for title in titles), (label, titles)
    assert all(" dB" in row[2][0] for row in drawn) == (kind != "prior")


@pytest.mark.parametrize("kind", KINDS)
def test_a_few_images_at_a_time_give_the_scores_of_all_at_once(kind, make_trainer, tmp_path, monkeypatch):
    images = Images(torch.rand(18, 3, 16, 16, generator=torch.Generator().manual_seed(0)) * 2 - 1, ["x"] * 18)
    trainer = make_trainer(*KINDS[kind])
    for p in trainer.average.parameters():  # some output layers start at zero
        p.data += 0.02 * torch.randn(p.shape, generator=torch.Generator().manual_seed(1))
    sizes = []
    trainer.average.register_forward_hook(lambda net, inputs, out: sizes.append(len(inputs[-1])))
    scores = trainer.validate(images, tmp_path / "grid.png")
    assert max(sizes) <= 16
    if kind == "velocity":
        names = [f"psnr N={N}{task}" for N in (1, 2) for task in ("", " denoising", " random-inpainting")]
        assert list(scores) == names
    assert (tmp_path / "grid.png").is_file()
    if kind in ("velocity", "unrolled", "bridge"):
        monkeypatch.setattr(validation, "CHUNK", 100)
        sizes.clear()
        assert trainer.validate(images, None) == pytest.approx(scores, abs=1e-3)
        assert max(sizes) == 18


def test_the_images_are_measured_on_the_device_of_the_network(make, monkeypatch):
    """Told by a device that holds no numbers: nothing may go to the default, a GPU where there is one."""
    real, seen = validation.restore_chunk, []

    def restore_chunk(evaluation, *rest):
        seen.append(evaluation.device)
        return real(evaluation, *rest)

    def method(op, y, sigma, generator):
        seen.append(y.device)
        raise InterruptedError

    monkeypatch.setattr(validation, "restore_chunk", restore_chunk)
    monkeypatch.setattr("firm.tasks.base.BaseTask.measure", lambda self, x, *_: (None, x))
    images, meta = Images(torch.zeros(3, 3, 16, 16), ["x"] * 3), torch.device("meta")
    with pytest.raises(InterruptedError):
        validation.scored(validation.NamedMethod("method", method), make("task=denoising"), images, meta, None)
    assert seen == [meta, meta]


def test_random_masks_are_the_protocols(make):
    """One mask for all images, and the same at every validation, whatever training draws or an entry says."""
    images, masks = Images(torch.ones(3, 3, 16, 16), ["x"] * 3), []

    def method(op, y, sigma, generator):
        masks.append(op.A(torch.ones(3, 3, 16, 16)))
        return y

    for fresh in (make("mask=fresh"), make("mixture=[{name: random-inpainting, mask: fresh}]")):
        validation.scored(validation.NamedMethod("method", method), fresh, images, RANK.device, None)
    first = masks[0][0]
    assert 0 < float(first.mean()) < 1
    assert all(torch.equal(mask, first) for batch in masks for mask in batch)


def test_the_best_model_is_that_of_the_best_score(fit, tmp_path, monkeypatch):
    scores = {2: 1.0, 4: 3.0, 6: 2.0, 8: 2.5}
    monkeypatch.setattr(Trainer, "validate", lambda self, images, picture: {"psnr N=2": scores[self.step]})
    settings = ["validate_every=2", "steps_per_epoch=4", "warm_start_epochs=0", "checkpoint_every=2"]
    for epochs in (1, 2):  # the second run goes on, and knows the best of the first
        fit(*settings, f"epochs={epochs}")
        assert firm.load(tmp_path / "run" / "best.safetensors").card["steps"] == 4
    assert firm.load(tmp_path / "run" / "model.safetensors").card["steps"] == 8
