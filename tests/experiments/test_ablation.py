"""The ablations: every row is the network it says it is, trained once, and evaluated as the tables are."""

import dataclasses

import pytest
import torch
from helpers import save_celeba

import firm
from experiments import published
from experiments.ablations import collapse
from experiments.ablations import study as ablation
from experiments.ablations.study import BLUR, RANDOM, Variant
from experiments.shared import Settings
from firm._util.checks import generator_for
from firm.data import load_images

TINY = dict(side=128, ch=4, mult=(1,), blocks=1, groups=2, attention=(), unshuffle=8)


@pytest.fixture
def settings(tmp_path, monkeypatch):
    """Faces of noise, networks of a few numbers, two steps of training."""
    save_celeba(tmp_path / "data")
    real = Variant.config

    def small(self, settings, data):
        short = dict(epochs=2, steps_per_epoch=1, warm_start_epochs=1, ema_from_epoch=0)
        return dataclasses.replace(real(self, settings, data), network=TINY, batch_size=2, bf16=False, **short)

    monkeypatch.setattr(Variant, "config", small)
    return Settings(tmp_path / "out", tmp_path / "data", limit=1, precision="float32", device=torch.device("cpu"))


def forbid(monkeypatch):
    monkeypatch.setattr(ablation, "train", lambda *_: pytest.fail("trained"))


def face_of(settings):
    """The test face that is restored, and the noise that it is restored from."""
    x = load_images("celeba", settings.celeba, "test", size=128, limit=1).batch(range(1))
    return x, generator_for(42, 0, "method")


def saved(settings, variant):
    return firm.load(settings.out / "networks" / variant.name / "model.safetensors")


def test_the_variants_differ_in_what_they_say_and_in_nothing_else(tmp_path):
    settings = Settings(tmp_path, tmp_path)
    plain = Variant(RANDOM).config(settings, tmp_path)
    assert (plain.K, plain.beta, plain.rho, plain.objective, plain.output) == (5, 0.5, 0.01, "balanced", "correction")
    assert plain.max_minutes == 0  # equal steps, not equal time
    changed = [
        *((v, {"K": K}) for K, v in ablation.DEPTH.items()),
        *((v, {"beta": b}) for b, v in ablation.DAMPING.items()),
        *((pair[0], {"K": 0}) for pair in ablation.SOLVER.values()),
        *((pair[1], {}) for pair in ablation.SOLVER.values()),
    ]  # fmt: skip
    for variant, changes in changed:
        config = variant.config(settings, tmp_path)
        assert config == dataclasses.replace(plain, task=variant.task, out=config.out, **changes)
    ours, weighted, paper = (v.config(settings, tmp_path) for v in collapse.VARIANTS.values())
    assert ours == dataclasses.replace(plain, task=BLUR, out=ours.out)
    assert weighted == dataclasses.replace(ours, objective="paper", out=weighted.out)
    assert paper == dataclasses.replace(weighted, output="direct", out=paper.out)


def test_depth_trains_once_and_evaluates_every_row(settings, monkeypatch):
    found = ablation.study(settings, "ablation-k")
    for K, variant in ablation.DEPTH.items():
        assert (saved(settings, variant).solver.K, saved(settings, variant).card["steps"]) == (K, 2)
    forbid(monkeypatch)
    again = ablation.study(settings, "ablation-k")
    (table,) = again["tables"]
    assert [line["label"] for line in table["lines"]] == ["K = 3", "K = 5", "K = 7"]
    for line, before, K in zip(table["lines"], found["tables"][0]["lines"], published.DEPTH, strict=True):
        assert line["ours"].pop("ms") > 0
        assert line["ours"].items() < before["ours"].items()
        assert tuple(line["paper"].values()) == published.DEPTH[K]
    psnr = [line["ours"]["psnr"] for line in table["lines"]]
    assert ("PSNR rises with K" in again["notes"][-1]) == (psnr == sorted(psnr))


def test_a_row_has_the_numbers_of_its_network(settings):
    """PSNR at N = 2, computed here with the saved model and the protocol's measurement and noise."""
    found = ablation.study(settings, "ablation-beta")
    task = firm.Task(RANDOM, 128)
    for line, (beta, variant) in zip(found["tables"][0]["lines"], ablation.DAMPING.items(), strict=True):
        x, start = face_of(settings)
        op, y = task.measure(x, 42, 0)
        model = saved(settings, variant)
        assert model.solver.beta == beta
        restored = firm.sample(model, op, y, 2, sigma=task.sigma, generator=[start])
        psnr = -10 * float(((restored - x) / 2).square().mean().log10())
        assert line["ours"]["psnr"] == pytest.approx(psnr, abs=0.02)
    worst = min(found["tables"][0]["lines"], key=lambda line: line["ours"]["psnr"])
    assert f"{worst['label']} is the worst" in found["notes"][-1]


def test_the_solver_stands_below_flow_only(settings):
    found = ablation.study(settings, "ablation-solver")
    lines = {line["label"]: line for line in found["tables"][0]["lines"]}
    assert list(lines)[:2] == ["N = 2, flow-only", "N = 2, with the solver"]
    assert len(lines) == 8
    assert saved(settings, ablation.SOLVER[BLUR][0]).solver.K == 0
    assert lines["N = 25, with the solver"]["paper"]["deblurring psnr"] == 31.46
    assert lines["N = 2, flow-only"]["paper"]["random-inpainting lpips"] == 0.0186
    without, solved = (lines[f"N = 2, {how}"]["ours"]["deblurring psnr"] for how in ("flow-only", "with the solver"))
    assert f"deblurring {solved - without:+.2f} dB (paper +0.27)" in found["notes"][-1]


def test_quick_trains_nothing_and_says_so(settings, monkeypatch):
    forbid(monkeypatch)
    quick = dataclasses.replace(settings, quick=True)
    for name, count in (("ablation-k", 3), ("ablation-beta", 4), ("ablation-solver", 4)):
        found = ablation.study(quick, name)
        assert len(found["tables"][0]["lines"]) == count
        assert all(not line["ours"] and line["paper"] for line in found["tables"][0]["lines"])
        assert found["notes"][-1].startswith("not trained yet, so without our rows: ")
    found = collapse.study(quick, "collapse")
    assert found["figures"] == []
    assert "deblurring-objectivepaper-outputdirect" in found["notes"][-1]


def test_a_training_that_was_stopped_is_not_taken_for_finished(settings, monkeypatch):
    monkeypatch.setattr(ablation, "train", lambda *_: {"finished": False})
    with pytest.raises(KeyboardInterrupt):
        ablation.study(settings, "ablation-k")
    assert not (settings.out / "networks" / ablation.DEPTH[3].name / "done").exists()
    assert not (settings.out / "ablation-k" / "results.json").exists()


def test_a_network_of_other_settings_is_not_taken(settings, monkeypatch):
    """As after a change of ablation.yaml: rows of different trainings would stand in one table."""
    assert ablation.trained(settings, Variant(RANDOM)) is not None
    forbid(monkeypatch)
    moved = dataclasses.replace(settings, out=settings.out.rename(settings.out.parent / "moved"))
    assert ablation.trained(moved, Variant(RANDOM)) is not None  # where it lies does not matter
    small = Variant.config
    monkeypatch.setattr(Variant, "config", lambda *given: dataclasses.replace(small(*given), lr=0.5))
    with pytest.raises(ValueError, match=r"was trained with other settings than ablation.yaml has: delete .*random"):
        ablation.trained(moved, Variant(RANDOM))


def test_the_error_over_time_is_that_of_the_posterior_mean(settings):
    found = collapse.study(settings, "collapse")
    curves = found["numbers"]["root mean square error"]
    assert list(curves) == list(collapse.VARIANTS)
    assert (settings.out / "collapse" / "times.png").stat().st_size > 5000
    x, start = face_of(settings)
    op, y = firm.Task(BLUR, 128).measure(x, 42, 0)
    x_0 = torch.randn(x.shape, generator=start)
    for label, variant in collapse.VARIANTS.items():
        model = saved(settings, variant)
        for t, value in zip(collapse.TIMES, curves[label], strict=True):
            z = model.posterior_mean(op, (1 - t) * x_0 + t * x, t, y)
            assert value == pytest.approx(float((z - x).square().mean().sqrt()), rel=1e-3)
    last = found["tables"][0]["lines"][-1]
    assert (last["ours"], last["paper"]["N = 25 psnr"]) == ({}, 31.46)
    rows = found["tables"][0]["lines"][0]["ours"]
    assert f"{rows['N = 2 psnr'] - rows['N = 25 psnr']:.2f} dB" in found["notes"][-1]
