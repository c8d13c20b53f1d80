"""What makes two evaluations different, and how much of one is in memory."""

import math
import weakref

import pytest
import torch

import firm
from firm.data import Images
from firm.evaluation import Evaluation, NamedMethod, evaluate, plain_methods, run
from firm.evaluation.report import summarize
from firm.operators import Identity
from firm.tasks import BaseTask, task_class

SIZE = 32


def images(seed, count=3):
    values = torch.randint(
        0, 256, (count, 3, SIZE, SIZE), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed)
    )
    return Images(values, [f"{i}.png" for i in range(count)])


def test_other_pixels_under_the_same_names_are_refused(tmp_path):
    tasks = [firm.Task("denoising", SIZE)]
    evaluate(Evaluation(images(0), tasks), plain_methods(), tmp_path, progress=False)
    with pytest.raises(ValueError, match=r"holds another evaluation \(different pixels\)"):
        evaluate(Evaluation(images(1), tasks), plain_methods(), tmp_path, progress=False)


def test_the_digest_sees_every_image_and_the_kind_of_values():
    many = images(0, 130)
    other = Images(many.data.clone(), many.names)
    assert other.digest() == many.digest()
    other.data[129, 2, 31, 31] += 1
    assert len({many.digest(), other.digest(), Images(many.data.float(), many.names).digest()}) == 3


CODE = """
from firm.operators import Identity
from firm.tasks import BaseTask

class Mine(BaseTask):
    name = "mine"
    def build(self, values):
        return {operator}
"""


def test_an_edited_task_of_ones_own_is_another(tmp_path):
    found = []
    for number, operator in enumerate(("Identity()", "Identity(  )")):  # the file counts, whatever was changed in it
        file = tmp_path / f"own{number}.py"
        file.write_text(CODE.format(operator=operator))
        found.append(task_class(f"{file}:Mine")(SIZE))
    evaluate(Evaluation(images(0), found[:1]), plain_methods(), tmp_path / "out", progress=False)
    evaluate(Evaluation(images(0), found[:1]), plain_methods(), tmp_path / "out", progress=False)
    with pytest.raises(ValueError, match=r"different mine"):
        evaluate(Evaluation(images(0), found[1:]), plain_methods(), tmp_path / "out", progress=False)


def test_one_measurement_is_in_memory_at_a_time(tmp_path, monkeypatch):
    real, alive, most = run.measure_chunk, [], []

    def measure(*arguments):
        found = real(*arguments)
        alive.append(weakref.ref(found))
        most.append(sum(one() is not None for one in alive))
        return found

    monkeypatch.setattr(run, "measure_chunk", measure)
    tasks = [firm.Task("denoising", SIZE), firm.Task("deblurring", SIZE)]
    evaluate(Evaluation(images(0, 6), tasks), plain_methods(), tmp_path, progress=False)
    assert len(most) == 2 * 6  # one serves all methods
    assert max(most) <= 2  # the one before is let go once the next is there


def test_an_exact_restoration_has_an_infinite_psnr_and_a_summary(tmp_path):
    task = firm.Task("denoising", SIZE, sigma=0)
    rows = evaluate(Evaluation(images(0), [task]), plain_methods()[:1], tmp_path, progress=False)
    row = summarize(rows)["denoising"]["degraded"]
    assert (row["psnr"], row["psnr_std"]) == (math.inf, 0.0)
    assert row["ssim"] == pytest.approx(1)


class Own(BaseTask):
    """A task of the name, but without the settings, of one of the library's."""

    name = "super-resolution"

    def build(self, values):
        return Identity()


def test_a_task_may_have_the_name_of_another(tmp_path):
    rows = evaluate(Evaluation(images(0), [Own(SIZE)]), plain_methods()[:1], tmp_path, progress=False)
    assert all(math.isfinite(row["psnr"]) for row in rows)


def test_methods_of_one_chunk_come_one_after_the_other(tmp_path):
    """So that one measurement serves them, and a stopped run has all methods of the first images."""
    seen = []

    def method(name):
        def restore(op, y, sigma, generator):
            seen.append((name, round(float(y.sum()), 3)))
            return op.A_adjoint(y)

        return NamedMethod(name, restore)

    evaluate(
        Evaluation(images(0), [firm.Task("denoising", SIZE)]), [method("a"), method("b")], tmp_path, progress=False
    )
    assert [name for name, _ in seen] == ["a", "b"] * 3
    assert [y for name, y in seen if name == "a"] == [y for name, y in seen if name == "b"]
