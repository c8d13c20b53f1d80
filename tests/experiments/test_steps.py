"""The number of steps N: what is asked for, and a small run checked by hand."""

import pytest
from study_helpers import by_hand, figures, labels, line, note_asked, numbers, panel, scored, settings, shows

from experiments.steps import study as steps
from firm.tasks import Task, tables

DENOISING, DEBLURRING, SUPER, RANDOM, BOX = tables()
OF_FACES = (DEBLURRING, SUPER, RANDOM)


@pytest.fixture(scope="module")
def found(root):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(steps, "tables", lambda: (DEBLURRING, BOX))  # two are enough
        return steps.study(settings(root, "run", steps=(2, 1), limit=1), "steps")


def test_it_asks_for_the_papers_tasks_and_draws_less_when_quick(root, monkeypatch):
    evaluated, drawn = note_asked(monkeypatch, steps)
    faces, cats = ([Task(task, size) for task in tables()] for size in (128, 256))
    steps.study(settings(root, "asked"), "steps")
    rows = labels(1, 2, 4, 10, 25, 50, 100)
    assert evaluated == [("celeba", 100, rows, faces, ""), ("afhq", 100, rows, cats, "")]
    of_faces = [(Task(kind, 128), ["degraded", *rows], 0) for kind in OF_FACES]
    of_both = [*of_faces, (Task(DEBLURRING, 256), ["degraded", *rows], 0)]
    assert drawn == [*of_both, *of_both]  # the last: the portrait and the cat
    evaluated.clear()
    results = steps.study(settings(root, "asked", quick=True), "steps")
    assert [tasks for *_, tasks, _ in evaluated] == [faces, [Task(DEBLURRING, 256)]]
    assert not any(file.startswith(("portrait", "cat-")) for file in figures(results))


def test_the_numbers_of_every_N_with_the_papers_beside(found, root):
    assert [table["title"] for table in found["tables"]] == ["1 image of CelebA", "1 image of AFHQ-Cat"]
    assert [line["label"] for line in found["tables"][0]["lines"]] == labels(2, 1)
    for table, size in ((0, 128), (1, 256)):
        for N in (1, 2):
            expected = scored(*by_hand(root, Task(DEBLURRING, size), N))
            assert numbers(found, table, f"FIRM N={N}", DEBLURRING) == pytest.approx(expected, abs=2e-3)
    assert line(found, 0, "FIRM N=2")["paper"][f"{BOX} psnr"] == 33.25
    assert line(found, 1, "FIRM N=2")["paper"][f"{BOX} psnr"] == 29.27
    assert line(found, 0, "FIRM N=1")["paper"] == {}
    assert found["model"].endswith("tiny.safetensors")


def test_every_N_is_drawn(found, root):
    files = figures(found)
    assert files == {
        "celeba-curves.png": True, **{f"celeba-{kind}.png": False for kind in OF_FACES}, "afhq-curves.png": True,
        "afhq-deblurring.png": False, **{f"portrait-{kind}.png": True for kind in OF_FACES},
        "cat-deblurring.png": True,
    }  # fmt: skip
    assert all((root / "run" / "steps" / file).is_file() for file in files)
    task = Task(SUPER, 128)
    (truth, two), (_, one) = (by_hand(root, task, N) for N in (2, 1))
    op, y = task.measure(truth, 42, 0)
    for j, expected in enumerate((truth, op.A_adjoint(y), two, one)):
        assert shows(panel(root / "run" / "steps" / "celeba-super-resolution.png", j), expected[0])


def test_the_curves_hold_our_points_and_the_papers(monkeypatch, tmp_path):
    """Ours against N = 1 and 4 in any order, the paper's against 2, 4, 10 and 25."""
    drawn = []
    monkeypatch.setattr(steps, "save", lambda figure, path: drawn.append(figure))
    ours = {"FIRM N=4": {"psnr": 31.0, "lpips": 0.05}, "FIRM N=1": {"psnr": 33.0, "lpips": 0.09}}
    steps.draw_curves(tmp_path, steps.PARTS[0], {RANDOM: ours}, (4, 1), "7 images")
    both, psnr, lpips = drawn[0].axes
    lines = [[[list(v) for v in curve.get_data()] for curve in axis.lines] for axis in (both, psnr, lpips)]
    assert lines == [
        [[[33.0, 31.0], [0.09, 0.05]], [[35.03, 34.67, 33.98, 33.42], [0.018, 0.016, 0.014, 0.013]]],
        [[[1, 4], [33.0, 31.0]], [[2, 4, 10, 25], [35.03, 34.67, 33.98, 33.42]]],
        [[[1, 4], [0.09, 0.05]], [[2, 4, 10, 25], [0.018, 0.016, 0.014, 0.013]]],
    ]
    assert [text.get_text() for text in both.texts] == ["1", "4", "2", "4", "10", "25"]
    assert "7 images" in drawn[0].get_suptitle()
    assert psnr.get_xscale() == "log"


def test_it_counts_the_tasks_that_fall():
    """In one task PSNR falls and LPIPS rises, in the other both fall; from N = 2 to 25, not from 1 or to 50."""
    far, few = {"psnr": 0.0, "lpips": 9.0}, {"psnr": 30.0, "lpips": 0.2}
    both = {"FIRM N=1": far, "FIRM N=2": few, "FIRM N=50": far}
    worse, better = {"psnr": 29.0, "lpips": 0.3}, {"psnr": 29.0, "lpips": 0.1}
    summary = {DENOISING: both | {"FIRM N=25": worse}, BOX: both | {"FIRM N=25": better}}
    assert steps.trade_off(steps.PARTS[0], summary, (1, 2, 25, 50)) == [
        "CelebA, from N = 2 to 25: PSNR falls in 2 and LPIPS in 1 of 2 tasks "
        "(the paper, from N = 2 to 25: in 5 and 4 of 5)"
    ]
    (note,) = steps.trade_off(steps.PARTS[1], summary, (2, 1))
    assert note.startswith("AFHQ-Cat, from N = 1 to 2: PSNR falls in 0 and LPIPS in 2 of 2 tasks")
    assert steps.trade_off(steps.PARTS[0], summary, (2,)) == []
