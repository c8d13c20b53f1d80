import pytest
from helpers import save_pictures, tiny_model


@pytest.fixture(scope="session")
def model_file(tmp_path_factory):
    """A tiny model for color pictures, with random weights."""
    trained_for = [{"name": "denoising", "sigma": [0.05, 0.4]}, {"name": "deblurring", "blur": [0.5, 2.0]}]
    return tiny_model(tmp_path_factory.mktemp("model") / "tiny.safetensors", trained_for)


@pytest.fixture
def folder(tmp_path):
    """Three pictures of 36x44 pixels."""
    root = tmp_path / "in"
    root.mkdir()
    return save_pictures(root, 3, (44, 36))
