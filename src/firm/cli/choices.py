"""Values of options, spelled out here so that ``--help`` need not load the library's heavier parts."""

from typing import Literal

Dataset = Literal["celeba", "afhq", "folder", "arrays"]
Split = Literal["train", "val", "test"]
Convention = Literal["tables", "text"]
Precision = Literal["auto", "bf16", "float32"]
Format = Literal["png", "png16", "npy"]
Integrator = Literal["euler", "midpoint", "heun"]
