"""What the studies evaluate and draw: the paper's numbers of images and rows, less with --quick, or as asked for."""

import pytest
from study_helpers import labels, note_asked, settings

from experiments.errors import study as errors
from experiments.fourier import study as fourier
from experiments.mismatch import study as mismatch
from experiments.qualitative import study as qualitative
from experiments.steps import study as steps

QUICK, MINE = dict(quick=True), dict(quick=True, methods="flower1", limit=2)
EVERY, FEW = labels(1, 2, 4, 10, 25, 50, 100), labels(1, 2, 4, 10)
SLOW, FAST = ("Flower5-OT", *labels(2, 25)), ("Flower1-OT", *labels(2, 10))
ASKED = [  # a study, options, of every evaluation the data set, images and rows, and how many rows of panels are drawn
    (steps, {}, [("celeba", 100, *EVERY), ("afhq", 100, *EVERY)], 8),
    (steps, QUICK, [("celeba", 10, *FEW), ("afhq", 3, *FEW)], 4),
    (mismatch, {}, 6 * [("celeba", 100, "Flower5-OT", "FIRM N=2")], 12),
    (mismatch, QUICK, 6 * [("celeba", 10, "FIRM N=2")], 12),
    (mismatch, dict(MINE, steps=(4, 1)), 6 * [("celeba", 2, "Flower1-OT", *labels(4, 1))], 8),
    (fourier, {}, [("afhq", 100, "degraded", "Flower1-OT", *labels(2, 4, 10))], 2),
    (fourier, QUICK, [("afhq", 4, "degraded", *labels(2, 4))], 2),
    (fourier, dict(MINE, steps=(4,)), [("afhq", 2, "degraded", "Flower1-OT", "FIRM N=4")], 2),
    (errors, {}, [("celeba", n, "degraded", "PnP-Flow5", *SLOW) for n in (100, 1)], 0),  # the last: the portrait
    (errors, QUICK, [("celeba", n, "degraded", "PnP-Flow1", *FAST) for n in (1, 1)], 0),
    (qualitative, {}, [], 14),
    (qualitative, QUICK, [], 7),
]


@pytest.mark.parametrize(("module", "given", "evaluated", "drawn"), ASKED)
def test_what_a_study_asks_for(module, given, evaluated, drawn, root, monkeypatch):
    asked, panels = note_asked(monkeypatch, module)
    results = module.study(settings(root, "asked", **given), module.__name__.split(".")[1])
    assert [(dataset, count, *rows) for dataset, count, rows, *_ in asked] == evaluated
    assert len(panels) == drawn
    left_out = getattr(module, "LEFT_OUT", None)  # what takes minutes is, where nobody asks for it
    assert (left_out in results["notes"]) == (left_out is not None and given == QUICK)
