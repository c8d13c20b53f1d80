import pytest
from helpers import call, save_pictures, tiny_model


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


@pytest.fixture
def restore(model_file, tmp_path):
    """Run `firm restore` with one step of the tiny model, into tmp_path/out: what is given replaces these.

    It must end with the exit `code`; what it printed is returned.
    """

    def run(*words, code=0):
        usual = ["--steps", 1, "--model", model_file, "--out", tmp_path / "out"]
        result = call("restore", *usual, *words)
        assert result.exit_code == code, result.output
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return result.output

    return run
