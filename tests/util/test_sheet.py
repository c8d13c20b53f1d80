"""Pictures side by side: their own pixels, titles, scales; without matplotlib."""

import subprocess
import sys

import numpy as np
import torch

from firm._util import sheet as module
from firm._util.sheet import GAP, TEXT, inferno, sheet
from firm.data.sets import portrait_file

TOP = TEXT + 2 * GAP  # of the first panel


def random(*shape):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(0)) * 2 - 1


def as_bytes(x):
    return ((x + 1) * 127.5).round().byte().expand(3, -1, -1).permute(1, 2, 0).numpy()


def test_a_pixel_is_a_pixel():
    x = random(3, 210, 300)
    pixels = np.asarray(sheet([[("one", x), ("two", -x)]]))
    assert pixels.shape == (TOP + 210 + GAP, 3 * GAP + 600, 3)
    np.testing.assert_array_equal(pixels[TOP : TOP + 210, GAP : GAP + 300], as_bytes(x))
    np.testing.assert_array_equal(pixels[TOP : TOP + 210, 2 * GAP + 300 : 2 * GAP + 600], as_bytes(-x))
    assert (pixels[:TOP, GAP : GAP + 300] < 128).any()  # a title


def test_small_pictures_are_enlarged_by_whole_factors():
    x = random(1, 20, 64)
    pixels = np.asarray(sheet([[("x", x)]]))[TOP:, GAP:]
    np.testing.assert_array_equal(pixels[: 20 * 4, : 64 * 4], as_bytes(x).repeat(4, 0).repeat(4, 1))
    small, large = random(3, 100, 150), random(3, 200, 300)
    pixels = np.asarray(sheet([[("small", small), ("large", large)]]))[TOP:, GAP:]
    np.testing.assert_array_equal(pixels[:200, :300], as_bytes(small).repeat(2, 0).repeat(2, 1))


def test_a_standard_deviation_has_colors_and_a_scale():
    std = torch.linspace(0, 0.25, 200 * 200).reshape(200, 200)
    pixels = np.asarray(sheet([[("standard deviation", std)]]))[TOP : TOP + 200, GAP:]
    np.testing.assert_array_equal(pixels[:, :200], inferno((std / 0.25).numpy()))
    bar = pixels[:, 200 + GAP // 2 + 3]
    np.testing.assert_array_equal(bar, inferno(np.linspace(1, 0, 200)))
    assert (pixels[:TEXT, 200 + GAP + module.BAR :] < 128).any()  # its largest value


def test_rows_of_different_lengths_and_long_titles():
    x = random(3, 200, 200)
    pixels = np.asarray(sheet([[("a", x)], [("a", x), ("w" * 60, x)]]))
    assert pixels.shape[0] == 2 * (TOP + 200) + GAP
    assert pixels.shape[1] > 3 * GAP + 400 + 100  # as wide as the title


def test_many_channels_show_the_first():
    x = random(4, 200, 200)
    np.testing.assert_array_equal(np.asarray(sheet([[("x", x)]])), np.asarray(sheet([[("x", x[:1])]])))


def test_a_sheet_that_would_fill_the_memory_is_shrunk(monkeypatch):
    monkeypatch.setattr(module, "MOST", 3e4)
    pixels = np.asarray(sheet([[("x", torch.full((3, 400, 600), 1.0)), ("y", torch.full((3, 400, 600), -1.0))]]))
    assert pixels.size / 3 < 6e4
    assert (pixels[TOP + 5, -2 * GAP] == 0).all()


def test_the_colors_are_matplotlibs():
    import matplotlib

    values = np.linspace(0, 1, 256)
    expected = matplotlib.colormaps["inferno"](values)[:, :3] * 255
    assert np.abs(inferno(values) - expected).max() < 4


PROGRAM = """
import sys
from typer.testing import CliRunner
from firm.cli import app
result = CliRunner().invoke(app, sys.argv[1:])
assert result.exit_code == 0, result.output
print("matplotlib" in sys.modules)
"""


def test_restoring_does_not_load_matplotlib(tmp_path):
    words = ["restore", str(portrait_file()), "--simulate", "denoising", "--steps", "1", "--samples", "2"]
    program = [sys.executable, "-c", PROGRAM, *words, "-o", str(tmp_path / "o")]
    done = subprocess.run(program, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
