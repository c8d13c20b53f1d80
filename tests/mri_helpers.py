"""Raw k-space in the files of scanners, made small: a phantom seen by a few coils, and writers of three formats."""

import numpy as np
import torch

from firm.operators.coils import simulated_maps

SHIFT = {"dim": (-2, -1)}
HEADER = """<?xml version="1.0"?>
<ismrmrdHeader xmlns="http://www.ismrm.org/ISMRMRD">
 <encoding>
  <encodedSpace><matrixSize><x>{H}</x><y>{W}</y><z>1</z></matrixSize></encodedSpace>
  <reconSpace><matrixSize><x>{h}</x><y>{w}</y><z>1</z></matrixSize></reconSpace>
  <encodingLimits><kspace_encoding_step_1><minimum>0</minimum><maximum>{last}</maximum><center>{center}</center>
  </kspace_encoding_step_1></encodingLimits>
  <trajectory>{trajectory}</trajectory>
  <parallelImaging><calibrationMode>{calibration}</calibrationMode></parallelImaging>
 </encoding>
</ismrmrdHeader>"""


def phantom(H, W):
    """A head with a soft rim, a pattern and a smooth phase, (1, H, W), at most 1.3 large; nothing around it."""
    y, x = torch.linspace(-1, 1, H)[:, None], torch.linspace(-1, 1, W)
    inside = ((1 - (y / 0.9) ** 2 - (x / 0.8) ** 2) / 0.6).clamp(0, 1)
    inside = inside**2 * (3 - 2 * inside)
    return (inside * (1 + 0.3 * torch.sin(7 * x) * torch.cos(6 * y)) * torch.exp(1j * (x + 0.3)))[None]


def scanned(images=2, coils=4, H=48, W=40, noise=0.02, size=100.0):
    """Centered k-space (images, coils, H, W), complex64, of phantoms that are `size` bright; the phantom, the maps."""
    generator = torch.Generator().manual_seed(0)
    maps = simulated_maps(torch.rand(1, coils, 6, generator=generator), torch.tensor([coils]), (H, W))[0]
    truth = size * torch.cat([phantom(H, W) * (1 - 0.2 * i) for i in range(images)])
    y = torch.fft.fft2(torch.fft.ifftshift(maps * truth[:, None], **SHIFT), norm="ortho")
    y = torch.fft.fftshift(y, **SHIFT)
    y = y + noise * size * torch.randn(y.shape, dtype=y.dtype, generator=generator)
    return y.numpy(), truth.numpy(), maps.numpy()


def write_fastmri(path, kspace, header=None, **datasets):
    import h5py

    with h5py.File(path, "w") as file:
        file["kspace"] = kspace
        for name, values in datasets.items():
            file[name] = values
        if header is not None:
            file["ismrmrd_header"] = header
    return path


def write_bart(path, kspace):
    """k-space (images, coils, H, W) as H x W x 1 x coils, images along the fourteenth dimension."""
    images, coils, H, W = kspace.shape
    sizes = [H, W, 1, coils, *[1] * 9, images, 1, 1]
    path.with_suffix(".hdr").write_text("# Dimensions\n" + " ".join(map(str, sizes)) + " \n")
    path.with_suffix(".cfl").write_bytes(kspace.transpose(2, 3, 1, 0).astype(np.complex64).tobytes(order="F"))
    return path.with_suffix(".cfl")


def header(H, W, image=None, trajectory="cartesian", calibration="embedded", center=None):
    h, w = image or (H, W)
    return HEADER.format(H=H, W=W, h=h, w=w, last=W - 1, center=W // 2 if center is None else center,
                         trajectory=trajectory, calibration=calibration)  # fmt: skip


COUNTERS = [
    *((name, "<u2") for name in ("kspace_encode_step_1", "kspace_encode_step_2", "average", "slice", "contrast",
                                 "phase", "repetition", "set", "segment")),
    ("user", "<u2", (8,)),
]  # fmt: skip
HEAD = [
    ("version", "<u2"), ("flags", "<u8"), ("number_of_samples", "<u2"), ("available_channels", "<u2"),
    ("active_channels", "<u2"), ("discard_pre", "<u2"), ("discard_post", "<u2"), ("center_sample", "<u2"),
    ("encoding_space_ref", "<u2"), ("idx", COUNTERS),
]  # fmt: skip


def write_ismrmrd(path, kspace, xml=None, lines=None, noise=None, change=lambda heads: None):
    """One acquisition for every line of k-space (images, coils, H, W), after those of `noise` (coils, samples)."""
    import h5py

    images, coils, H, W = kspace.shape
    rows = [] if noise is None else [(1 << 18, 0, 0, noise)]
    rows += [(0, i, n, kspace[i, :, :, n]) for i in range(images) for n in (range(W) if lines is None else lines)]
    vlen = h5py.vlen_dtype(np.float32)
    data = np.zeros(len(rows), np.dtype([("head", HEAD), ("traj", vlen), ("data", vlen)]))
    for n, (flags, i, line, values) in enumerate(rows):
        head = data["head"][n : n + 1]
        head["flags"], head["number_of_samples"], head["active_channels"] = flags, values.shape[1], coils
        head["center_sample"] = H // 2
        head["idx"]["kspace_encode_step_1"], head["idx"]["slice"] = line, i
        data["data"][n] = np.ascontiguousarray(values, np.complex64).view(np.float32).reshape(-1)
        data["traj"][n] = np.empty(0, np.float32)
    change(data["head"])
    with h5py.File(path, "w") as file:
        file["dataset/data"] = data
        file["dataset/xml"] = [xml or header(H, W)]
    return path
