"""Slices of CT series in DICOM files, as attenuation in [-1, 1]; needs pydicom, and pyjpegls where it is compressed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

WATER = 0.0193  # attenuation per mm, at 70 keV


def series(folder: Path) -> list[Path]:
    """Return the files of the axial CT slices below a folder, from feet to head; of other kinds none."""
    import pydicom

    found = []
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        try:
            about = pydicom.dcmread(path, stop_before_pixels=True)
        except pydicom.errors.InvalidDicomError:
            continue
        if about.get("Modality") == "CT" and "AXIAL" in list(about.get("ImageType", [])):
            found.append((float(about.ImagePositionPatient[2]), path))
    return [path for _, path in sorted(found)]


def hounsfield(path: Path) -> tuple[Tensor, float]:
    """Read one slice: its values in HU, (1, 1, H, W), what was not imaged as air, and the side of a pixel in mm."""
    import pydicom

    file = pydicom.dcmread(path)
    values = file.pixel_array.astype(np.float32) * float(file.RescaleSlope) + float(file.RescaleIntercept)
    return torch.from_numpy(values)[None, None].clamp(min=-1000), float(file.PixelSpacing[0])


def attenuation(path: Path, side: int | None = None) -> tuple[Tensor, float]:
    """Read one slice with -1 for air, 0 for water and 1 for 1000 HU, of `side` pixels, and the side of one in mm."""
    values, pixel = hounsfield(path)
    x = (values / 1000).clamp(-1, 1)
    if side is not None and side != x.shape[-1]:
        pixel *= x.shape[-1] / side
        x = F.interpolate(x, size=(side, side), mode="area")
    return x, pixel
