import pytest
import torch
from helpers import save_pictures

import firm


@pytest.fixture(scope="session")
def model_file(tmp_path_factory):
    """A tiny model for colour pictures, with random weights."""
    torch.manual_seed(0)
    net = firm.UNet(3, side=32, ch=8, mult=(1, 2), blocks=1, attention=(), groups=4, unshuffle=2, noise_level=True)
    for p in net.parameters():
        p.data = torch.randn(p.shape) * 0.05
    card = {"trained_for": [{"name": "denoising", "sigma": [0.05, 0.4]}, {"name": "deblurring", "blur": [0.5, 2.0]}]}
    path = tmp_path_factory.mktemp("model") / "tiny.safetensors"
    firm.Firm(net, firm.Solver(K=2, output="correction"), card).save(path)
    return path


@pytest.fixture
def folder(tmp_path):
    """Three pictures of 36x44 pixels."""
    root = tmp_path / "in"
    root.mkdir()
    return save_pictures(root, 3, (44, 36))
