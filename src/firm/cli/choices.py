"""Values of options, spelled out here so that ``--help`` need not load the library."""

from typing import Literal

Dataset = Literal["celeba", "afhq", "folder"]
Convention = Literal["tables", "text"]
Precision = Literal["auto", "bf16", "float32"]
Format = Literal["png", "png16", "npy"]
PictureTask = Literal["denoising", "deblurring", "super-resolution", "inpainting"]
TaskName = Literal[
    "denoising", "deblurring", "super-resolution", "random-inpainting", "box-inpainting", "fourier", "stroke-inpainting"
]
