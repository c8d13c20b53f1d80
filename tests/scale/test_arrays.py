"""Arrays restored block by block: as one image would be, however they are cut; stopped, continued, in many formats."""

import json

import numpy as np
import pytest
import torch
from helpers import call, says, tells, tiny_model

import firm
from firm.operators import Identity, Mask, gaussian_kernel
from firm.scale import dask as engine
from firm.scale import restore_array
from firm.scale.blocks import placed_noise
from firm.tasks.deblurring import valid_blur

zarr = pytest.importorskip("zarr")
pytest.importorskip("dask")
pytestmark = pytest.mark.filterwarnings("default")  # of zarr, and of what it stands on

H, W, SIGMA = 100, 124, 0.1
HOW = {"sigma": SIGMA, "tile": 32, "overlap": 8, "steps": 2, "progress": False, "device": "cpu", "workers": 2}


def clean(channels=3, shape=(H, W)):
    i, j = torch.meshgrid(*(torch.linspace(0, 5, n) for n in shape), indexing="ij")
    return torch.stack([torch.sin((1 + c) * i) * torch.cos(j + c) for c in range(channels)])


def noisy(channels=3, shape=(H, W)):
    return clean(channels, shape) + SIGMA * torch.randn(channels, *shape, generator=torch.Generator().manual_seed(5))


@pytest.fixture
def source(tmp_path):
    np.save(tmp_path / "y.npy", noisy().numpy())
    return tmp_path / "y.npy"


def restored(out):
    found = zarr.open(out, mode="r")
    return torch.from_numpy((found if hasattr(found, "shape") else found["0"])[...])


def whole(model, op, y, rim=0, **how):
    """The image restored at once: Algorithm 2 with tiles, from the same starting noise."""
    size = [range(n + 2 * rim) for n in y.shape[-2:]]
    x_0 = torch.from_numpy(placed_noise(0, 0, len(y), *size)).to(y)
    x = firm.sample(firm.tiled(model, 32, 8), op, y[None], 2, sigma=SIGMA, x_0=x_0[None], **how)[0]
    return x[:, rim : x.shape[1] - rim, rim : x.shape[2] - rim]


@pytest.mark.parametrize(("kind", "side"), [("near", 48), ("near", 96), ("wide", 60)])
def test_blocks_are_the_whole_image(kind, side, source, tmp_path, request):
    model = request.getfixturevalue(kind)
    restore_array(source, tmp_path / "x.zarr", model, block=side, **HOW)
    expected = whole(model, Identity(), noisy())
    assert (restored(tmp_path / "x.zarr") - expected).abs().max() < 1e-5
    assert (expected - noisy()).abs().max() > 0.1


def test_without_a_margin_the_cut_shows(source, tmp_path, wide):
    """Which is what the margin is for."""
    restore_array(source, tmp_path / "x.zarr", wide, block=48, margin=0, **HOW)
    assert (restored(tmp_path / "x.zarr") - whole(wide, Identity(), noisy())).abs().max() > 1e-4


def test_inpainting_by_a_mask_array(source, tmp_path, near):
    missing = np.zeros((H, W), np.uint8)
    missing[20:60, 30:80] = 255  # all of a block
    np.save(tmp_path / "mask.npy", missing)
    how = dict(HOW, task="inpainting", mask=tmp_path / "mask.npy")
    restore_array(source, tmp_path / "x.zarr", near, block=16, margin=1, **how)
    op = Mask(torch.from_numpy(missing == 0).float())
    y = noisy() * op.mask
    assert (restored(tmp_path / "x.zarr") - whole(near, op, y)).abs().max() < 1e-5
    restore_array(source, tmp_path / "kept.zarr", near, block=64, **dict(how, sigma=0.001))
    kept = restored(tmp_path / "kept.zarr")
    seen = op.mask.bool()
    assert torch.allclose(kept[:, seen], noisy()[:, seen], atol=1e-6)
    assert (kept - noisy())[:, ~seen].abs().max() > 0.1


def test_deblurring_with_its_rim(source, tmp_path, near):
    found = []
    for side in (48, 96):
        out = tmp_path / f"{side}.zarr"
        restore_array(source, out, near, "deblurring", blur=0.8, block=side, **HOW)
        found.append(restored(out))
    op = valid_blur(gaussian_kernel(9, 0.8)).double()
    op.cg_tol, op.cg_iterations = 1e-12, 500
    expected = whole(near.double(), op, noisy().double(), rim=4)
    assert (found[0] - found[1]).abs().max() < 1e-5
    assert (found[0] - expected).abs().max() < 1e-5


def test_a_stopped_run_goes_on(source, tmp_path, near, monkeypatch):
    out, done, restore = tmp_path / "x.zarr", [], engine.restore_block

    def stops(*args):
        if len(done) == 1:
            raise MemoryError("killed")
        done.append(args)
        return restore(*args)

    how = dict(HOW, workers=1, margin=1)
    monkeypatch.setattr(engine, "restore_block", stops)
    with pytest.raises(MemoryError):
        restore_array(source, out, near, block=64, **how)
    monkeypatch.setattr(engine, "restore_block", restore)
    report = restore_array(source, out, near, block=64, **how)
    assert (report["blocks"], report["now"]) == (4, 3)
    restore_array(source, tmp_path / "at_once.zarr", near, block=64, **how)
    assert torch.equal(restored(out), restored(tmp_path / "at_once.zarr"))
    assert restore_array(source, out, near, block=64, **how)["now"] == 0
    for change in ({"seed": 1}, {"sigma": 0.2}, {"tile": 64}):
        with pytest.raises(ValueError, match=next(iter(change))):
            restore_array(source, out, near, block=64, **{**how, **change})
    np.save(source, noisy().numpy() / 2)
    with pytest.raises(ValueError, match="files"):
        restore_array(source, out, near, block=64, **how)
    assert restore_array(source, out, near, block=64, force=True, **how)["now"] == 4


def test_a_block_of_zeros_counts_as_done(tmp_path, near):
    """Chunks of nothing but the fill value are not stored by zarr, unless it is told to."""
    np.save(tmp_path / "zeros.npy", np.zeros((32, 32), np.uint8))
    with torch.no_grad():
        near.estimator.conv.bias.fill_(-100)  # black everywhere
    how = dict(HOW, block=32, iterations=None)
    near.solver = firm.Solver(K=1, rho=100.0, beta=1.0)
    assert restore_array(tmp_path / "zeros.npy", tmp_path / "x.zarr", near, **how)["now"] == 1
    assert not restored(tmp_path / "x.zarr").any()
    assert restore_array(tmp_path / "zeros.npy", tmp_path / "x.zarr", near, **how)["now"] == 0


def test_a_microscopy_image_keeps_its_axes_and_says_so(tmp_path, near):
    """Five axes of 8 bits, gray: every plane by itself; as OME-Zarr again."""
    values = ((noisy(4, (40, 50)).clamp(-1, 1) + 1) * 127.5).round().to(torch.uint8).numpy().reshape(2, 1, 2, 40, 50)
    for version in (2, 3):
        about = {"axes": [{"name": n} for n in "tczyx"], "datasets": [{"path": "full"}, {"path": "half"}]}
        attributes = {"multiscales": [about]} if version == 2 else {"ome": {"version": "0.5", "multiscales": [about]}}
        group = zarr.create_group(tmp_path / f"{version}.zarr", zarr_format=version, attributes=attributes)
        group.create_array("full", data=values, chunks=(1, 1, 1, 16, 16))
        group.create_array("half", data=values[..., ::2, ::2])
        out = tmp_path / f"{version}_restored.zarr"
        restore_array(tmp_path / f"{version}.zarr", out, near, block=32, **HOW)
        x = restored(out)
        assert (x.shape, x.dtype) == (values.shape, torch.uint8)
        assert 2 < (x.float() - torch.from_numpy(values).float()).abs().mean() < 120
        assert not torch.equal(x[0, 0, 0], x[0, 0, 1])
        again = zarr.open(out, mode="r")
        found = dict(again.attrs).get("ome", dict(again.attrs))["multiscales"][0]
        assert [level["path"] for level in found["datasets"]] == ["0"]
        assert "".join(axis["name"] for axis in found["axes"]) == "tczyx"
        if version == 2:
            assert json.loads((out / "0" / ".zarray").read_text())["dimension_separator"] == "/"


def test_tiff_and_channels_last(tmp_path, near):
    tifffile = pytest.importorskip("tifffile")
    values = ((noisy().clamp(-1, 1) + 1) * 32767.5).numpy().astype(np.uint16).transpose(1, 2, 0)
    tifffile.imwrite(tmp_path / "y.tif", values, tile=(32, 32), photometric="rgb", compression="zlib")
    np.save(tmp_path / "y.npy", values)
    for name in ("y.tif", "y.npy"):
        restore_array(tmp_path / name, tmp_path / f"{name}.zarr", near, block=64, dtype="float32", **HOW)
    first, second = (restored(tmp_path / f"{name}.zarr") for name in ("y.tif", "y.npy"))
    assert first.shape == values.shape
    assert torch.equal(first, second)
    y = torch.from_numpy(values.astype(np.float32)).movedim(-1, 0) / 32767.5 - 1
    expected = (whole(near, Identity(), y) + 1) * 32767.5
    assert (first.movedim(-1, 0) - expected).abs().max() < 0.5  # of 65535


def test_a_model_for_gray_takes_the_channels_apart(source, tmp_path, near_gray):
    restore_array(source, tmp_path / "x.zarr", near_gray, block=64, **HOW)
    first = whole(near_gray, Identity(), noisy()[:1])
    assert (restored(tmp_path / "x.zarr")[0] - first[0]).abs().max() < 1e-5


def test_urls_of_zarr(source, tmp_path, near):
    array = zarr.open("memory://bucket/y.zarr", mode="w", shape=(3, H, W), dtype="f4", chunks=(3, 50, 50))
    array[...] = noisy().numpy()
    out = "memory://bucket/x.zarr"
    restore_array("memory://bucket/y.zarr", out, near, block=64, **HOW)
    restore_array(source, tmp_path / "x.zarr", near, block=64, **HOW)
    assert torch.equal(restored(out), restored(tmp_path / "x.zarr"))
    assert restore_array("memory://bucket/y.zarr", out, near, block=64, **HOW)["now"] == 0


def test_on_a_cluster_the_same(source, tmp_path, near):
    distributed = pytest.importorskip("distributed")
    restore_array(source, tmp_path / "x.zarr", near, block=64, **HOW)
    with (
        distributed.LocalCluster(n_workers=1, threads_per_worker=2, processes=False, dashboard_address=None) as cluster,
        distributed.Client(cluster),
    ):
        report = restore_array(source, tmp_path / "there.zarr", near, block=64, **dict(HOW, workers=None))
    assert report["now"] == 4
    assert torch.equal(restored(tmp_path / "x.zarr"), restored(tmp_path / "there.zarr"))


def test_noise_belongs_to_the_place():
    rows, columns = range(100, 300), range(-5, 270)
    large = placed_noise(3, 1, 2, rows, columns)
    assert np.array_equal(large[:, 20:50, 100:180], placed_noise(3, 1, 2, range(120, 150), range(95, 175)))
    assert abs(large.mean()) < 0.02
    assert abs(large.std() - 1) < 0.02
    others = [placed_noise(*about, rows, columns, *more) for about, more in
              (((4, 1, 2), ()), ((3, 0, 2), ()), ((3, 1, 2), (1,)))]  # fmt: skip
    assert all(abs(np.corrcoef(large.ravel(), other.ravel())[0, 1]) < 0.02 for other in others)
    right = placed_noise(3, 1, 2, rows, range(123, 398))
    assert abs(np.corrcoef(large.ravel(), right.ravel())[0, 1]) < 0.02


def test_what_is_not_local_is_refused(source, tmp_path, near):
    with pytest.raises(ValueError, match="not restored block by block"):
        restore_array(source, tmp_path / "x.zarr", near, "super-resolution", **HOW)
    np.save(tmp_path / "nan.npy", np.full((40, 40), np.nan, np.float32))
    with pytest.raises(ValueError, match="NaN"):
        restore_array(tmp_path / "nan.npy", tmp_path / "x.zarr", near, **HOW)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    with pytest.raises(ValueError, match="choose another place"):
        restore_array(source, tmp_path / "mine", near, **HOW)
    assert (tmp_path / "mine" / "thesis.txt").exists()


def test_the_noise_is_estimated_from_windows(tmp_path, near):
    y = clean(1, (600, 700)) + SIGMA * torch.randn(1, 600, 700, generator=torch.Generator().manual_seed(1))
    np.save(tmp_path / "y.npy", y[0].numpy())
    report = restore_array(tmp_path / "y.npy", tmp_path / "x.zarr", near, block=512,
                           **dict(HOW, sigma=None, steps=1, tile=256, overlap=0))  # fmt: skip
    assert abs(report["sigma"] - SIGMA) < 0.01


def test_the_command_line(source, tmp_path):
    model = tiny_model(tmp_path / "tiny.safetensors", [{"name": "denoising"}])
    out = tmp_path / "x.zarr"
    words = ["restore", source, "--task", "denoising", "--steps", 1, "--model", model, "--out", out, "--device", "cpu"]
    done = call(*words, "--sigma", "25/255", "--tile", 32, "--overlap", 8, "--block", 128)
    assert done.exit_code == 0, done.output
    assert says(done.output, "1 block of 1 restored by denoising")
    assert restored(out).shape == (3, H, W)
    again = call(*words, "--sigma", "25/255", "--tile", 32, "--overlap", 8, "--block", 128)
    assert says(again.output, "0 blocks of 1 restored")
    tells("--samples is for pictures", *words, "--samples", 3)
    tells("another seed", *words, "--sigma", "25/255", "--tile", 32, "--overlap", 8,
          "--seed", 5)  # fmt: skip
    tells("for arrays larger than memory", *words[:-4], "--out", tmp_path / "folder", "--block", 64)
