"""The grid of panels: every pixel where it belongs, zooms of the right square, error maps in the paper's colors."""

import numpy as np
import torch
from helpers import rand
from PIL import Image
from study_helpers import TOP, upscaled

from experiments.figures import GAP, RED, SIDE, TEXT, Panel, grid, label_points, pixels, save_grid
from experiments.shared import label


def at(picture, x, y, size=SIDE):
    return np.asarray(picture)[y : y + size, x : x + size]


def column(j, left=GAP):
    return left + j * (SIDE + GAP)


def test_pixels():
    """-1, 0 and 1 are black, gray and white; beyond is clamped; one channel is gray; maps are magma from 0 to 0.1."""
    image = torch.tensor([[[-1.0, 0.0, 1.0], [-3.0, 3.0, 0.5]]])
    assert pixels(image)[..., 0].tolist() == [[0, 128, 255], [0, 255, 191]]
    assert pixels(image).shape == (2, 3, 3)
    assert pixels(torch.tensor([1.0, -1.0, 0.0]).reshape(3, 1, 1)).tolist() == [[[255, 0, 128]]]
    colors = [[[0, 0, 3], [182, 54, 121], [251, 252, 191], [251, 252, 191]]]
    assert pixels(torch.tensor([[0.0, 0.05, 0.1, 0.7]])).tolist() == colors
    assert pixels(torch.tensor([[0.0, 0.2, 0.4]]), 0.4).tolist() == [colors[0][:3]]


def test_panels_stand_where_they_belong():
    a, b, c = (rand(3, side, side, seed=side) * 2 - 1 for side in (128, 256, 64))
    picture = grid(["a head that is much too long for the width of a panel", "two"],
                   [("", [Panel(a, "1"), Panel(b)]), ("", [Panel(None), Panel(c)])])  # fmt: skip
    lower = TOP + SIDE + GAP + TEXT + GAP  # the first row has labels
    assert picture.size == (column(2), lower + SIDE + GAP)
    for panel, x, y in ((a, 0, TOP), (b, 1, TOP), (c, 1, lower)):
        np.testing.assert_array_equal(at(picture, column(x), y), upscaled(panel))
    assert (at(picture, column(0), lower) == 255).all()  # an empty place
    dark = (at(picture, 0, 0, column(1))[:TOP] < 128).any(axis=(0, 2)).nonzero()[0]
    assert column(0) <= dark.min() < dark.max() - SIDE // 2 < column(0) + SIDE // 2  # the head is made to fit
    below = np.asarray(picture)[TOP + SIDE : lower]
    assert (below[:, : column(0) + SIDE] < 128).any()  # the label of the first
    assert (below[:, column(1) :] == 255).all()


def test_a_zoom_shows_its_square():
    """Of 128 pixels a quarter: 32 from row 51 and column 35 on, eight times enlarged; framed in panel and zoom."""
    image = rand(3, 128, 128) * 2 - 1
    picture = grid(["one", "two"], [("", [Panel(image), Panel(image, zoomed=False)])], zoom=True)
    zoom = at(picture, column(0), TOP + SIDE + GAP)
    square = np.asarray(pixels(image))[51:83, 35:67].repeat(8, 0).repeat(8, 1)
    np.testing.assert_array_equal(zoom[2:-2, 2:-2], square[2:-2, 2:-2])
    assert (zoom[0] == RED).all()
    framed = (at(picture, column(0), TOP) == RED).all(-1)
    assert framed[[102, 165], 70:134].all()  # the square's first and last row and first column, twice as large
    assert framed[102:166, 70].all()
    assert not framed[:102].any()
    assert not framed[166:].any()
    np.testing.assert_array_equal(at(picture, column(1), TOP), upscaled(image))  # without a frame
    assert (at(picture, column(1), TOP + SIDE + GAP) == 255).all()


def test_rows_have_names_and_maps_a_scale(tmp_path):
    left = TEXT + 2 * GAP
    image, errors = rand(3, 128, 128) * 2 - 1, rand(128, 128) / 10
    save_grid(tmp_path / "grid.png", ["one"], [("denoising", [Panel(image)]), ("", [Panel(errors, "0.01")])])
    with Image.open(tmp_path / "grid.png") as picture:
        assert picture.size[0] == left + SIDE + GAP + 4 * TEXT
        np.testing.assert_array_equal(at(picture, left, TOP), upscaled(image))
        np.testing.assert_array_equal(at(picture, left, TOP + SIDE + GAP), upscaled(errors))
        assert (np.asarray(picture)[TOP : TOP + SIDE, :left] < 128).any()  # the name
        scale = np.asarray(picture)[TOP : TOP + SIDE, left + SIDE + GAP]
    assert scale[[0, -1]].tolist() == [[251, 252, 191], [0, 0, 3]]


def test_labels():
    found = {"psnr": 34.0617, "ssim": 0.9546, "lpips": 0.02151, "mae": 0.01234}
    assert label(found, ("psnr", "ssim", "lpips")) == "34.06 / 0.955 / 0.022"
    assert label(found, ("mae", "psnr")) == "0.0123 / 34.06"


def test_labels_avoid_each_other_and_the_points():
    """Six points so close that texts on one side of them would cover their neighbors."""
    import matplotlib.pyplot as plt

    figure, axis = plt.subplots(figsize=(5, 4))
    points = [(f"method {k}", 1 + 0.02 * (k % 2), 30 + 0.1 * k, "black") for k in range(6)]
    axis.scatter(*zip(*[(x, y) for _, x, y, _ in points], strict=True))
    axis.set(xlim=(0, 2), ylim=(29, 32))
    label_points(axis, points)
    boxes = [note.get_window_extent() for note in axis.texts]
    places = axis.transData.transform([(x, y) for _, x, y, _ in points])
    assert [note.get_text() for note in axis.texts] == [text for text, *_ in points]
    assert not any(a.overlaps(b) for k, a in enumerate(boxes) for b in boxes[:k])
    assert not any(box.contains(*place) for box in boxes for place in places)
    plt.close(figure)
