"""The networks that the baselines need: found by name in a checkout, or trained by one command each."""

from __future__ import annotations

from pathlib import Path

from torch import nn

from firm._model import load_network

TRAINED_BY = {  # the beginning of a name -> how to make it
    "face-prior": "firm train configs/prior.yaml data=CELEBA out=runs/prior",
    "face-denoiser": "firm train configs/baselines/denoiser.yaml data=CELEBA out=runs/denoiser",
    "face-gradient-step": "firm train configs/baselines/gradient-step.yaml init_from=PRIOR data=CELEBA out=runs/gs",
    "face-ista-net": "firm train configs/baselines/ista-net.yaml task=TASK data=CELEBA out=runs/ista-net",
    "face-i2sb": "firm train configs/baselines/i2sb.yaml init_from=DENOISER data=CELEBA out=runs/i2sb",
    "cat-denoiser": "firm train configs/baselines/denoiser.yaml dataset=afhq size=256 data=AFHQ out=runs/cat-denoiser",
    "cat-prior": "firm train configs/prior.yaml dataset=afhq size=256 data=AFHQ out=runs/cat-prior",
}
IN_REPOSITORY = (
    "face-prior", "face-denoiser", "face-gradient-step", "face-i2sb",
    "face-ista-net-deblurring", "face-ista-net-super-resolution", "face-ista-net-random-inpainting",
)  # fmt: skip


def folder() -> Path:
    """Where the weights lie: ``weights`` of the checkout that this package is part of, or below here."""
    checkout = Path(__file__).parents[3] / "weights"
    return checkout if checkout.is_dir() else Path("baselines") / "weights"


def weights_file(name: str, where: Path | None = None) -> Path:
    """Where the network NAME should lie: in the folder `where`, or the usual one."""
    return (folder() if where is None else where) / f"{name}.safetensors"


def load_weights(name: str, where: Path | None = None) -> nn.Module:
    """The network NAME.safetensors of the folder `where`, ready to call; its attribute ``card`` says what it is."""
    path = weights_file(name, where)
    if not path.is_file():
        made = next((how for start, how in TRAINED_BY.items() if name.startswith(start)), "")
        where_from = (
            "They are in the repository, not in the installed package: run in a checkout, name their folder (--weights)"
            if name in IN_REPOSITORY
            else "They do not come with firm: name the folder that has them (--weights)"
        )
        raise FileNotFoundError(f"{path}: no such weights. {where_from}" + (f", or train them: {made}" if made else ""))
    return load_network(path)
