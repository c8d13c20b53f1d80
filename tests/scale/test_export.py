"""Files for other runtimes compute what torch does, at sizes that were not traced."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers import call, says
from PIL import Image

import firm
from firm._util.extras import MissingPackageError
from firm.operators import Blur, Downsample, Identity, Mask, Subsample, gaussian_kernel
from firm.scale import export
from firm.scale.export import export_model
from firm.scale.fourier import irfft2, rfft2, spectrum

EXAMPLE = Path(__file__).parents[2] / "examples" / "restore_with_onnxruntime.py"
pytestmark = pytest.mark.filterwarnings("ignore")  # of the exporters, on their own internals


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    net = firm.networks.ResUNet(
        3, widths=(8, 16), blocks=1, noise_level=True, extra=("previous", "context", "iteration")
    )
    for parameter in net.parameters():  # else it adds nothing at first
        torch.nn.init.normal_(parameter, std=0.05)
    card = {"name": "tiny", "depths": [1, 2], "notice": "for tests"}
    return firm.Firm(net, firm.Solver(K=2, output="correction"), card).requires_grad_(False).eval()


def inputs(op, size, seed=0):
    g = torch.Generator().manual_seed(seed)
    x = 0.5 * torch.randn(size, generator=g)
    sigma = torch.linspace(0.05, 0.2, len(x))
    return op.A(x), torch.randn(size, generator=g), sigma


def session(path):
    onnxruntime = pytest.importorskip("onnxruntime")
    return onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])


def arrays(**tensors):
    return {name: value.numpy() for name, value in tensors.items()}


@pytest.mark.parametrize("size", [(2, 16, 24), (1, 17, 32), (1, 15, 21)])
def test_the_products_are_fourier_transforms(size):
    x = torch.randn(size[0], 3, *size[1:], dtype=torch.float64)
    spectrum = torch.fft.rfft2(x)
    assert torch.allclose(rfft2(x), spectrum, atol=1e-10)
    assert torch.allclose(irfft2(spectrum, x.shape[-2:]), x, atol=1e-10)
    real = spectrum.abs()
    assert torch.allclose(irfft2(real, x.shape[-2:]), torch.fft.irfft2(real, x.shape[-2:]), atol=1e-10)


@pytest.mark.parametrize("side", [8, 25, 40])  # smaller than the kernel, too: it wraps around
@pytest.mark.parametrize("kernel", [(25, 25), (4, 7)])
def test_the_spectrum_of_a_kernel(side, kernel):
    op, x = Blur(torch.rand(kernel).double()), torch.empty(1, 3, side, side + 6, dtype=torch.float64)
    assert torch.allclose(spectrum(op.kernel, side, side + 6), op.transfer(x), atol=1e-10)


CASES = {
    "denoising": ({}, lambda: (Identity(), {})),
    "inpainting": ({}, lambda: (lambda mask: (Mask(mask), {"mask": mask}))((torch.rand(1, 1, 48, 64) > 0.4).float())),
    "deblurring": ({}, lambda: (lambda k: (Blur(k), {"kernel": k}))(gaussian_kernel(25, 1.5))),
    "super-resolution": ({"scale": 2}, lambda: (Downsample(2), {})),
    "stride": ({"scale": 4, "filter": "stride"}, lambda: (Subsample(4), {})),
}


@pytest.mark.parametrize("case", CASES)
def test_the_sampler_in_onnxruntime(case, model, tmp_path):
    """At another size and batch than the traced ones, for other masks, kernels and noise levels."""
    pytest.importorskip("onnxscript")
    settings, make = CASES[case]
    steps, K = (2, 2) if case in ("denoising", "inpainting") else (1, 2)
    torch.manual_seed(0)
    op, pattern = make()
    task = "super-resolution" if case == "stride" else case
    done = export_model(model, tmp_path / "m.onnx", task, steps=steps, iterations=K, **settings)
    assert done.difference < 1e-5
    assert [p.name for p in tmp_path.iterdir()] == ["m.onnx"]
    y, noise, sigma = inputs(op, (1 if pattern else 3, 3, 48, 64))
    file = session(tmp_path / "m.onnx")
    found = file.run(None, arrays(y=y, noise=noise, sigma=sigma, **pattern))[0]
    wanted = firm.sample(model, op, y, steps, iterations=K, sigma=sigma, x_0=noise)
    assert np.abs(found - wanted.numpy()).max() < 1e-4
    about = file.get_modelmeta().custom_metadata_map
    assert (about["steps"], about["iterations"], about["value_range"]) == (str(steps), str(K), "[-1, 1]")
    assert json.loads(about["card"]) == model.card
    assert about["license"] == "for tests"
    assert {node.op_type for node in nodes(tmp_path / "m.onnx")}.isdisjoint({"Network", "DFT"})


def nodes(path):
    onnx = pytest.importorskip("onnx")
    file = onnx.load(path)
    assert len(file.functions) == 0
    assert {o.domain for o in file.opset_import} == {""}  # any runtime opens it
    return file.graph.node


def test_the_network_in_onnxruntime(model, tmp_path):
    pytest.importorskip("onnxscript")
    done = export_model(model, tmp_path / "net.onnx")
    assert list(done.inputs) == ["x", "x_t", "z", "measured", "seen", "t", "sigma", "k"]
    g = torch.Generator().manual_seed(1)
    images = [torch.randn(3, 3, 20, 48, generator=g) for _ in range(5)]
    numbers = [torch.rand(3, generator=g), torch.rand(3, generator=g), torch.tensor([0.0, 1.0, 2.0])]
    given = dict(zip(done.inputs, [*images, *numbers], strict=True))
    found = session(tmp_path / "net.onnx").run(None, arrays(**given))[0]
    assert np.abs(found - model.estimator(*images, *numbers).numpy()).max() < 1e-4


def test_the_weights_are_there_once(model, tmp_path):
    pytest.importorskip("onnxscript")
    sizes = [export_model(model, tmp_path / "m.onnx", "denoising", steps=n).megabytes for n in (1, 3)]
    weights = sum(p.numel() for p in model.parameters()) * 4e-6
    assert sizes[1] - sizes[0] < weights


@pytest.mark.parametrize("task", [None, "deblurring"])
def test_torch_export(task, model, tmp_path):
    done = export_model(model, tmp_path / "m.pt2", task, steps=1, iterations=1)
    extra = {"firm.json": ""}
    work = torch.export.load(tmp_path / "m.pt2", extra_files=extra).module()
    assert json.loads(json.loads(extra["firm.json"])["card"]) == model.card
    assert done.difference < 1e-5
    if task is not None:
        kernel = gaussian_kernel(25, 1.0)
        y, noise, sigma = inputs(Blur(kernel), (3, 3, 40, 56))
        wanted = firm.sample(model, Blur(kernel), y, 1, iterations=1, sigma=sigma, x_0=noise)
        assert (work(y, noise, sigma, kernel) - wanted).abs().max() < 1e-5


def test_what_differs_from_torch_is_not_written(model, tmp_path, monkeypatch):
    monkeypatch.setattr(export, "_write_pt2", lambda *_: lambda inputs: inputs[0] + 0.01)
    with pytest.raises(RuntimeError, match="differ from torch's by"):
        export_model(model, tmp_path / "m.pt2", "denoising", steps=1)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("path", "settings", "words"),
    [
        ("m.pt", {}, "must end in .onnx or .pt2"),
        ("m.onnx", {"task": "fourier"}, "a file can hold denoising"),
        ("m.onnx", {"compiled": True}, "AOTInductor makes no ONNX file"),
        ("m.onnx", {"task": "super-resolution", "scale": 1}, "from 2 to 16"),
    ],
)
def test_what_cannot_be_exported(path, settings, words, model, tmp_path):
    with pytest.raises(ValueError, match=words):
        export_model(model, tmp_path / path, **settings)


def test_a_missing_package_is_named(model, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(MissingPackageError, match=r"An ONNX file needs onnx: pip install 'firm\[export\]'"):
        export_model(model, tmp_path / "m.onnx")


def test_the_command_and_the_example_without_torch(model, tmp_path):
    """The example restores with the file that the command writes, in a process that cannot import torch."""
    pytest.importorskip("onnxscript")
    model.save(tmp_path / "tiny.safetensors")
    result = call("export", str(tmp_path / "tiny.safetensors"), str(tmp_path / "m.onnx"), "--task", "denoising")
    assert result.exit_code == 0, result.output
    assert says(result.output, "it computes what torch does within")
    pixels = np.random.default_rng(0).integers(0, 256, (45, 37, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "photo.png")
    (tmp_path / "torch.py").write_text("raise ImportError('torch is not to be used')")
    words = [str(EXAMPLE), "m.onnx", "photo.png", "restored.png", "25"]
    done = subprocess.run(
        [sys.executable, *words], cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(tmp_path)}, capture_output=True,
        text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = np.asarray(Image.open(tmp_path / "restored.png"), np.float32)
    y = torch.from_numpy(np.pad(pixels, ((0, 1), (0, 1), (0, 0)), "reflect")).permute(2, 0, 1)[None] / 127.5 - 1
    x_0 = torch.from_numpy(np.random.default_rng(0).standard_normal(y.shape, np.float32))
    x = firm.sample(model, Identity(), y, sigma=50 / 255, x_0=x_0)[0]
    wanted = ((x + 1) * 127.5).clamp(0, 255).round().permute(1, 2, 0)[:45, :37].numpy()
    assert np.abs(found - wanted).max() <= 1
