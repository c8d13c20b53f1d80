"""`firm evaluate` with baselines, on two small pictures and networks of a few hundred weights."""

import json
import shutil

import pytest
import torch
from helpers import save_pictures, says

import evaluation_helpers
import firm
from evaluation_helpers import csv_rows
from firm._model import save_network
from firm._util.checks import generator_for
from firm.baselines import flower
from firm.baselines.catalog import BASELINES
from firm.baselines.weights import FOLDER, TRAINED_BY, Networks, baseline_methods, load_weights
from firm.data import load_images
from firm.metrics import psnr
from firm.networks import GradientStep, ISTANet, PriorUNet

SIZE = 32
SETTINGS = dict(side=SIZE, ch=4, mult=(1,), blocks=1, groups=2, attention=(), unshuffle=8)


def small(kind, seed=0):
    generator = torch.Generator().manual_seed(seed)
    net = ISTANet(phases=1, features=2) if kind is ISTANet else kind(3, **SETTINGS)
    for p in net.parameters():
        p.data = 0.1 * torch.randn(p.shape, generator=generator)
    return net


def save_weights(folder, seed=0):
    nets = {"prior": (PriorUNet, seed, "prior"), "denoiser": (PriorUNet, seed + 2, "prior"),
            "gradient-step": (GradientStep, seed, "denoiser"), "i2sb": (PriorUNet, seed + 1, "bridge")}  # fmt: skip
    for task in ("deblurring", "super-resolution", "random-inpainting"):
        nets[f"ista-net-{task}"] = (ISTANet, seed, "unrolled")
    for name, (kind, number, trained_as) in nets.items():
        save_network(folder / f"face-{name}.safetensors", small(kind, number), trained_as, {})
    return folder


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    return save_pictures(tmp_path_factory.mktemp("pictures"), 2, (36, 40))


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    return save_weights(tmp_path_factory.mktemp("weights"))


def command(pictures, weights, out, *names, **options):
    return evaluation_helpers.command(pictures, out, *names, **{"size": SIZE, "weights": weights, **options})


def run(*arguments, **options):
    done = command(*arguments, **options)
    assert done.exit_code == 0, done.output
    return done.output


def rows(out, task):
    """The methods of a task in the order of the table, without the two that every table begins with."""
    found = list(json.loads((out / "results.json").read_text())["summary"][task])
    assert found[:2] == ["degraded", "data-consistency"]
    return found[2:]


def test_a_table_has_the_papers_labels_and_only_the_tasks_of_a_method(pictures, weights, tmp_path):
    """A network for each task does the tasks that it was trained for: Fourier lines once there is one for them."""
    tasks = "denoising,deblurring,box-inpainting,fourier"
    names = "pnp-hqs,ista-net,ot-ode"
    printed = run(pictures, weights, tmp_path / "out", names, tasks=tasks, limit=1)
    assert rows(tmp_path / "out", "denoising") == rows(tmp_path / "out", "fourier") == ["PnP-HQS", "OT-ODE"]
    assert rows(tmp_path / "out", "deblurring") == ["PnP-HQS", "ISTA-Net", "OT-ODE"]
    assert rows(tmp_path / "out", "box-inpainting") == ["OT-ODE"]
    assert "PnP-HQS does not do box-inpainting: no row there" in printed
    assert says(printed, "ISTA-Net does not do denoising, box-inpainting, fourier: no row there")
    nfe = {(line["task"], line["method"]): line["nfe"] for line in csv_rows(tmp_path / "out")}
    assert [nfe[key] for key in (("denoising", "PnP-HQS"), ("box-inpainting", "OT-ODE"))] == ["1", "90"]
    trained = shutil.copytree(weights, tmp_path / "weights")
    save_network(trained / "face-ista-net-fourier.safetensors", small(ISTANet), "unrolled", {})
    run(pictures, trained, tmp_path / "out", "ista-net", tasks="fourier,deblurring", limit=1)
    assert "ISTA-Net" in rows(tmp_path / "out", "fourier")


def test_a_row_is_the_function_with_its_settings(pictures, weights, tmp_path):
    """The numbers in the table are those of the method called by hand, with the noise that belongs to the image."""
    run(pictures, weights, tmp_path, "flower1", tasks="super-resolution")
    images = load_images("folder", pictures, size=SIZE, progress=False)
    task, prior = firm.Task("super-resolution", SIZE), load_weights("face-prior", weights)
    for line in [line for line in csv_rows(tmp_path) if line["method"] == "Flower1-OT"]:
        i = int(line["index"])
        x = images.batch(range(i, i + 1))
        op, y = task.measure(x, 42, i)
        got = flower(prior, op, y, task.sigma, steps=100, generator=[generator_for(42, i, "method")])
        assert float(line["psnr"]) == pytest.approx(float(psnr(got, x)), abs=1e-3)


def test_nothing_is_computed_twice_and_priors_are_told_apart(pictures, weights, tmp_path, monkeypatch):
    out = tmp_path / "out"
    given = {"tasks": "denoising,super-resolution"}
    run(pictures, weights, out, "pnp-hqs", **given)
    before = (out / "images.csv").read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr("firm.evaluation.run.restore_chunk", lambda *_: pytest.fail("computed again"))
        run(pictures, weights, out, "pnp-hqs", **given)
    assert (out / "images.csv").read_bytes() == before
    (tmp_path / "other").mkdir()
    run(pictures, save_weights(tmp_path / "other", seed=5), out, "pnp-hqs", **given)
    found = [line for line in csv_rows(out) if line["method"] == "PnP-HQS"]
    assert len(found) == 2 * 2 * 2  # tasks, pictures, priors
    one, other = ({line["psnr"] for line in part} for part in (found[:4], found[4:]))
    assert not one & other
    assert len({line["fingerprint"] for line in found}) == 4  # the settings of the tasks differ too


def test_all_methods_beside_a_model(pictures, weights, tmp_path, monkeypatch):
    """With few steps each, to save time."""
    for name, row in BASELINES.items():
        fewer = {"ista-net": {}, "d-flow": dict(outer=1, inner=2)}.get(name, dict(steps=5))
        for key, value in fewer.items():
            monkeypatch.setitem(row.fixed, key, value)
    net = small(firm.UNet)
    firm.Firm(net, firm.Solver(K=2)).save(tmp_path / "tiny.safetensors")
    model = tmp_path / "tiny.safetensors"
    run(pictures, weights, tmp_path, model, methods="all", tasks="deblurring", steps=2, limit=1)
    labels = [row.label for row in BASELINES.values()]
    assert len(labels) == 12
    assert rows(tmp_path, "deblurring") == [*labels, "FIRM N=2"]
    assert all(line["method"] and float(line["psnr"]) > 0 for line in csv_rows(tmp_path))


def test_missing_weights_are_said_before_anything_is_read(weights, tmp_path):
    """The data set does not exist, which is not what the message is about."""
    (tmp_path / "w").mkdir()
    for method, file, start in (
        ("flower1", "face-prior", "face-prior"), ("ista-net", "face-ista-net-deblurring", "face-ista-net"),
    ):  # fmt: skip
        result = command(tmp_path / "no pictures", tmp_path / "w", tmp_path / "out", method, tasks="deblurring")
        assert result.exit_code == 2
        assert says(result.output, f"{file}.safetensors: no such weights")
        assert says(result.output, TRAINED_BY[start])
        assert not (tmp_path / "out").exists()
    result = command(tmp_path / "no pictures", weights, tmp_path / "out", "flower1", tasks="deblurring")
    assert says(result.output, "no such folder")


def test_the_message_about_missing_weights_is_true(tmp_path):
    faces = [start for start in TRAINED_BY if start.startswith("face")]
    assert all(list(FOLDER.glob(f"{start}*.safetensors")) for start in faces)
    for name in ("face-prior", "face-ista-net-fourier", "cat-prior"):
        with pytest.raises(FileNotFoundError, match=r"no such weights\. Those of faces are in .* train them: "):
            load_weights(name, tmp_path)


def test_options_that_no_method_looks_at_are_noted(pictures, weights, tmp_path):
    told = run(pictures, weights, tmp_path / "out", "degraded", limit=1, steps=3)
    assert says(told, "note: --steps is for models, and had no effect here")
    assert says(told, "note: --weights is for baselines, and had no effect here")
    assert "no effect" not in run(pictures, weights, tmp_path / "out", "ot-ode", limit=1, steps=None)


def test_a_baseline_is_settled_for_a_task_first(weights):
    networks = Networks("cpu", where=weights)
    (method,) = baseline_methods("ot-ode", networks)
    with pytest.raises(RuntimeError, match=r"method\.on\(task\)"):
        method.run(None, None, 0.1, None)
    settled = method.on(firm.Task("deblurring", SIZE))
    assert (settled.label, settled.nfe) == ("OT-ODE", 60)
    assert baseline_methods("pnp-hqs", networks)[0].on(firm.Task("box-inpainting", SIZE)) is None


def test_cats_need_the_networks_of_cats(weights, tmp_path):
    (tmp_path / "afhq" / "test" / "cat").mkdir(parents=True)
    save_pictures(tmp_path / "afhq" / "test" / "cat", 1, (36, 40))
    told = command(tmp_path / "afhq", weights, tmp_path / "out", "pnp-hqs", dataset="afhq")
    assert (told.exit_code, says(told.output, "cat-denoiser.safetensors: no such weights")) == (2, True)
    cats = tmp_path / "weights"
    cats.mkdir()
    shutil.copy(weights / "face-denoiser.safetensors", cats / "cat-denoiser.safetensors")
    run(tmp_path / "afhq", cats, tmp_path / "out", "pnp-hqs", dataset="afhq")


def test_a_row_is_of_the_precision_that_auto_came_to(weights, monkeypatch):
    """So that rows of a machine with bfloat16 are not continued with those of one without."""
    prints = {}
    for name, has in (("auto", True), ("auto", False), ("bf16", False), ("float32", True)):
        monkeypatch.setattr("firm.acceleration._fast._has_bf16", lambda device, has=has: has)
        prints[name, has] = Networks("cpu", name, weights).get("prior", False)[1]
    assert prints["auto", True] == prints["bf16", False] != prints["auto", False] == prints["float32", True]
