"""Posterior samples, the solver's trajectory, calibration: numbers by hand, then the commands on a tiny model."""

import itertools
import json
import math

import pytest
import torch
from helpers import call, says
from study_helpers import figures, truth_of

import firm
from experiments.calibration import study as calibration
from experiments.posterior import study as posterior
from experiments.shared import SEED
from experiments.toy import study as toy
from experiments.trajectory import study as trajectory
from firm._util.checks import generator_for
from firm.data import portrait

BOX = firm.Task("box-inpainting", 128)


@pytest.fixture(scope="module")
def model(root):
    return firm.load(root / "tiny.safetensors")


def reproduce(root, name, *more):
    common = ["--data", root / "celeba", "--model", root / "tiny.safetensors", "--out", root / "run", "--quick"]
    result = call("reproduce", name, *common, "--precision", "float32", *more)
    assert result.exit_code == 0, result.output
    return json.loads((root / "run" / name / "results.json").read_text())


def start(index=0):
    return generator_for(SEED, index, "method")


def drawn_by_hand(side=6, hole=(slice(2, 4), slice(1, 3))):
    """Two samples that differ by 2 in a hole of 2x2 pixels and by 0.2 around it."""
    missing = torch.zeros(side, side, dtype=torch.bool)
    missing[hole] = True
    half = torch.where(missing, 1.0, 0.1).expand(1, 3, side, side)
    truth = torch.full((1, 3, side, side), 0.25)
    few, many = torch.stack([truth + half, truth - half]), torch.stack([truth + 2 * half, truth - half])
    return posterior.Drawn(truth, truth, missing, {2: few, 25: many})


def test_deviation_and_psnr_by_hand():
    found = posterior.measure(drawn_by_hand())
    assert found[2]["inside"] == pytest.approx(math.sqrt(2))  # of the two values 1 and -1
    assert found[2]["outside"] == pytest.approx(0.1 * math.sqrt(2))
    mse = (4 * 1 + 32 * 0.01) / 36
    assert found[2]["sample"] == pytest.approx(10 * math.log10(4 / mse))
    assert found[2]["mean"] > 100  # it is the truth
    assert found[25]["inside"] == pytest.approx(1.5 * math.sqrt(2))
    assert found[25]["mean"] == pytest.approx(10 * math.log10(4 / (mse / 4)))
    twice = [{2: dict(inside=0.4, outside=0.1, sample=30.0, mean=31.0)}]
    twice.append({2: dict(inside=0.2, outside=0.2, sample=20.0, mean=25.0)})
    line = posterior.summary({"faces": twice, "portrait": twice[:1]}, [2], 8).lines[0]  # the mean of the faces
    assert line.ours == pytest.approx({"inside": 0.3, "outside": 0.15, "sample": 25, "mean": 28, "ratio": 2})


def test_the_columns_are_the_papers_and_the_zoom_is_the_hole_with_a_margin():
    drawn = drawn_by_hand(30, (slice(10, 14), slice(2, 20)))
    row = posterior.panels(drawn)
    titles = ["truth", "measurement", "sample, N = 2", "sample, N = 2", "deviation, N = 2", "sample, N = 25"]
    assert posterior.heads((2, 25), 2) == [*titles, "deviation, N = 25"]
    assert posterior.heads((2,), 8).count("sample, N = 2") == 3
    for j, image in ((3, drawn.samples[2][1, 0]), (5, drawn.samples[25][0, 0])):
        assert torch.equal(row[j].image, image)
    assert row[4].image.shape == (30, 30)
    assert row[2].label == f"{posterior.measure(drawn)[2]['sample']:.2f} dB"
    for whole, part in zip(row, posterior.panels(drawn, zoomed=True), strict=True):
        assert torch.equal(part.image, whole.image[..., 6:18, 0:24])


def test_one_measurement_and_the_samples_of_the_evaluation(root, model):
    x = truth_of(root, BOX, 1)
    drawn = posterior.draw(model, x, 1, [1, 3], 2)
    op, y = BOX.measure(x, SEED, 1)
    assert torch.equal(drawn.measured, y)
    assert torch.equal(drawn.hole, op.mask == 0)
    for N in (1, 3):
        generator = start(1)
        both = [firm.sample(model, op, y, N, sigma=BOX.sigma, generator=generator) for _ in range(2)]
        torch.testing.assert_close(drawn.samples[N], torch.stack(both), atol=1e-5, rtol=0)


def test_the_study_of_samples(root, model):
    found = reproduce(root, "posterior", "--samples", 3)
    assert (found["images"], found["numbers"]["samples"]) == (1, 3)
    files = {"faces.png": False, "faces-zoom.png": False, "portrait.png": True, "portrait-zoom.png": True}
    assert figures(found) == files
    labels = ["1 face, N = 2", "1 face, N = 10", "portrait, N = 2", "portrait, N = 10"]
    assert [line["label"] for line in found["tables"][0]["lines"]] == labels
    expected = posterior.measure(posterior.draw(model, portrait(), 0, [2], 3))[2]
    assert found["numbers"]["portrait"][0]["2"] == pytest.approx(expected, rel=1e-3)
    assert found["tables"][0]["lines"][2]["ours"]["inside"] == pytest.approx(expected["inside"], rel=1e-3)


def test_a_trajectory_ends_where_sample_does(root, model):
    op, y = BOX.measure(truth_of(root, BOX), SEED)
    steps, end = trajectory.trajectory(model, op, y, 3, BOX.sigma, start())
    assert torch.equal(end, firm.sample(model, op, y, 3, sigma=BOX.sigma, generator=start()))
    assert [step.t for step in steps] == [0, 1 / 3, 2 / 3]
    assert [(len(step.x), len(step.z)) for step in steps] == [(2, 2)] * 3  # the tiny model has K = 2
    rho, mask = model.solver.rho, op.mask
    for step in steps:  # x^{k+1} solves (A'A + rho) x = A'y + rho z^k, pixel by pixel
        for x, z in zip(step.x, [step.x_t, *step.z], strict=False):
            torch.testing.assert_close(x, (mask * y + rho * z) / (mask + rho))
    for now, after in itertools.pairwise(steps):  # Euler, with the last z
        moved = now.x_t + (now.z[-1] - now.x_t) / (1 - now.t) / 3
        torch.testing.assert_close(after.x_t, moved, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(end, steps[-1].z[-1], atol=1e-4, rtol=1e-4)  # 1 - t is the last step


def test_the_rows_of_a_trajectory():
    truth, measured, x_t, *iterates = (torch.full((1, 3, 2, 2), v) for v in (0.0, 0.9, 0.1, 0.2, 0.3, 0.4, 0.5))
    ((above, xs), (below, zs)) = trajectory.panels(
        [trajectory.Step(0.0, x_t, iterates[:2], iterates[2:])], truth, measured
    )
    assert (above, below, zs[0].image) == ("t = 0: x^k", "t = 0: z^k", None)
    assert [float(p.image[0, 0, 0]) for p in (*xs, *zs[1:])] == pytest.approx([0.0, 0.9, 0.2, 0.3, 0.1, 0.4, 0.5])
    assert (xs[0].label, xs[3].label) == ("", f"{10 * math.log10(4 / 0.09):.2f} dB")


def test_the_study_of_the_trajectory(root, model):
    found = reproduce(root, "trajectory")
    assert figures(found) == {"face.png": False, "portrait.png": True}
    lines = {line["label"]: line["ours"] for line in found["tables"][0]["lines"]}
    assert list(lines)[:4] == ["face, t = 0, x^k", "face, t = 0, z^k", "face, t = 0.5, x^k", "face, t = 0.5, z^k"]
    op, y = BOX.measure(portrait(), SEED)
    x = firm.sample(model, op, y, 2, sigma=BOX.sigma, generator=start())
    expected = float(firm.metrics.psnr(x, portrait()))
    assert found["numbers"]["portrait"]["sample"] == pytest.approx(expected, rel=1e-4)
    assert lines["portrait, t = 0.5, z^k"]["2"] == pytest.approx(expected, rel=1e-4)
    assert found["numbers"]["face"]["steps"][1]["x"][0] == lines["face, t = 0.5, x^k"]["1"]


def test_what_makes_no_sense_is_refused(root, model):
    firm.Firm(model.estimator, firm.Solver(K=0)).save(root / "flow.safetensors")
    for words, said in (
        (["trajectory", "--model", root / "flow.safetensors"], "a model without the solver (K = 0) has no iterates"),
        (["calibration", "--samples", 10], "--samples 10: a 90 % interval needs 19 samples or more"),
    ):
        result = call("reproduce", *words, "--data", root / "celeba", "--out", root / "no")
        assert (result.exit_code, says(result.output, said)) == (2, True)


@pytest.mark.parametrize("width", [1.0, 0.5])
def test_samples_of_the_posterior_are_calibrated_and_narrow_ones_cover_less(width):
    """Truth of deviation 0.1, samples of `width` times that."""
    generator, tally = torch.Generator().manual_seed(0), calibration.Tally()
    for _ in range(4):
        truth = 0.1 * torch.randn(8000, generator=generator)
        tally.add(0.1 * width * torch.randn(64, 8000, generator=generator), truth)
    found = tally.summary()
    for level, share in found["coverage"].items():
        quantile = math.sqrt(2) * torch.erfinv(torch.tensor(int(level) / 100)).item()
        assert share == pytest.approx(math.erf(width * quantile / math.sqrt(2)), abs=0.01 / width**1.6)
    assert found["scale"] == pytest.approx({1.0: 1.02, 0.5: 2.03}[width], abs=0.05)
    assert (found["std"], found["rmse"]) == (pytest.approx(0.1 * width, rel=0.02), pytest.approx(0.1, rel=0.02))
    assert sum(b["share"] for b in found["bins"]) == pytest.approx(1)
    for b in found["bins"]:
        if b["share"] > 0.05:
            assert b["rmse"] / b["std"] == pytest.approx(1 / width, rel=0.25)


@pytest.mark.parametrize(
    ("covered", "N", "misses"),
    [({2: 0.5, 4: 0.88, 10: 0.93}, 4, 0), ({2: 0.5, 4: 0.61}, 4, 0.19), ({2: 0.99, 4: 0.2}, 2, 0.02), ({2: 0.8}, 2, 0)],
)
def test_the_requirement(covered, N, misses):
    by_steps = {n: {"coverage": {"50": 0.9, "90": share}, "scale": float(n)} for n, share in covered.items()}
    found = calibration.requirement("denoising", by_steps)
    assert (found["N"], found["met"], found["coverage"], found["scale"]) == (N, misses == 0, covered[N], N)
    assert found["misses by"] == pytest.approx(misses)
    sentence = calibration.sentence("denoising", found, 64)
    assert f"covers {covered[N]:.1%}" in sentence
    assert ("firm calibrate" in sentence) == (f"by {100 * misses:.1f} points" in sentence) == (misses > 0)


def test_the_study_of_calibration(root, model, monkeypatch):
    monkeypatch.setattr(toy, "FIGURE_STEPS", calibration.TOY_STEPS)
    monkeypatch.setattr(toy, "SAMPLES", 500)
    found = reproduce(root, "calibration", "--samples", 19)
    parts = ["denoising", "box-inpainting", "box-inpainting, inside", "box-inpainting, outside"]
    numbers = found["numbers"]["calibration"]
    assert list(numbers) == parts
    assert all(list(by_steps) == ["2", "4"] for by_steps in numbers.values())
    assert (found["images"], found["numbers"]["samples"], len(found["notes"])) == (2, 19, 2)
    whole, inside, outside = (numbers[part]["4"]["coverage"]["90"] for part in parts[1:])
    hole = 40**2 / 128**2
    assert whole == pytest.approx(hole * inside + (1 - hole) * outside, abs=1e-4)
    task, shares, quick = firm.Task("denoising", 128), [], firm.fast(model, "float32")
    for i in range(2):
        truth = truth_of(root, task, i)
        op, y = task.measure(truth, SEED, i)
        samples = firm.restore(quick, op, y, 4, 19, start(i).initial_seed(), sigma=task.sigma).samples
        shares.append(float(firm.metrics.coverage(samples, truth, 0.8)))
    assert numbers["denoising"]["4"]["coverage"]["80"] == pytest.approx(sum(shares) / 2, abs=1e-6)
    table, w1 = found["tables"]
    assert [line["label"] for line in table["lines"]][:2] == ["denoising, N = 2", "denoising, N = 4"]
    assert table["lines"][1]["ours"]["80"] == pytest.approx(50 * sum(shares), abs=1e-4)
    assert [line["ours"]["best"] for line in table["lines"]].count("*") == len(parts)
    assert w1["lines"][0]["ours"]["1"] > 5 * w1["lines"][0]["ours"]["50"]
    assert all((root / "run" / "calibration" / file).is_file() and free for file, free in figures(found).items())
