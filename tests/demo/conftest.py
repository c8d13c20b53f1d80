import importlib.util

import pytest
import torch
from demo.served import demo
from helpers import tiny_model
from PIL import Image

from firm.data import portrait
from firm.demo.models import Models
from firm.demo.request import Request
from firm.demo.restorer import Restorer


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "tiny.safetensors"
    return str(tiny_model(path, [{"name": "denoising", "sigma": [0.05, 0.4]}], channels=3))


@pytest.fixture(scope="session")
def restorer(tiny):
    return Restorer(Models([tiny], torch.device("cpu"), "float32"))


@pytest.fixture
def photo(tmp_path):
    """A small crop of the portrait, 48x40 pixels."""
    path = tmp_path / "photo.png"
    pixels = ((portrait()[0, :, 40:80, 40:88] + 1) * 127.5).round().to(torch.uint8).permute(1, 2, 0).numpy()
    Image.fromarray(pixels).save(path)
    return path


@pytest.fixture
def ask(photo, tiny):
    """A request for the photo, with what differs from the ordinary."""
    return lambda **changes: Request(**{"picture": photo, "name": "photo.png", "model": tiny} | changes)


@pytest.fixture(scope="session")
def page(tmp_path_factory):
    """``firm demo`` in a process of its own, as a user starts it: its address and its folder for temporary files."""
    if importlib.util.find_spec("gradio") is None:
        pytest.skip('the page needs gradio: pip install -e ".[demo]"')
    with demo(tmp_path_factory.mktemp("page")) as served:
        yield served
    assert list(served.temporary.glob("firm-demo-*")) == []  # Ctrl-C leaves nothing
