"""The folder of an evaluation: what it is for, what is found again, what is damaged, and who holds it."""

import csv
import io
import json
import os
from dataclasses import replace

import pytest
import torch
from helpers import call, held_by_another, says

import firm
from evaluation_helpers import SIZE, command, csv_rows, save_model, small_model
from firm._util import files
from firm.data import Images
from firm.evaluation import NamedMethod, evaluate, plain_methods
from firm.tasks import task_class

# What results depend on


def test_other_pixels_under_the_same_names_are_refused(evaluation, tmp_path):
    images = evaluation.images
    evaluate(evaluation, plain_methods(), tmp_path, progress=False)
    changed = images.data.clone()
    changed[2, 0, 0, 0] ^= 1
    with pytest.raises(ValueError, match=r"different pixels"):
        evaluate(replace(evaluation, images=Images(changed, images.names)), plain_methods(), tmp_path, progress=False)


def test_the_digest_sees_every_image_and_the_kind_of_values():
    many = Images(torch.randint(0, 256, (130, 3, 8, 8), dtype=torch.uint8), [str(i) for i in range(130)])
    other = Images(many.data.clone(), many.names)
    assert other.digest() == many.digest()
    other.data[129, 2, 7, 7] += 1
    assert len({many.digest(), other.digest(), Images(many.data.float(), many.names).digest()}) == 3


CODE = """
from firm.operators import Identity
from firm.tasks import BaseTask

class Mine(BaseTask):
    name = "mine"
    def build(self, values):
        return {operator}
"""


def test_an_edited_custom_task_is_another(evaluation, tmp_path):
    found = []
    for number, operator in enumerate(("Identity()", "Identity(  )")):  # the file counts, whatever was changed in it
        (tmp_path / f"own{number}.py").write_text(CODE.format(operator=operator))
        task = task_class(f"{tmp_path / f'own{number}.py'}:Mine")(SIZE)
        found.append(replace(evaluation, tasks=[task]))
    for _ in range(2):
        evaluate(found[0], plain_methods(), tmp_path / "out", progress=False)
    with pytest.raises(ValueError, match=r"different mine"):
        evaluate(found[1], plain_methods(), tmp_path / "out", progress=False)


def test_what_changes_the_results_changes_the_fingerprint(tmp_path):
    first, moved = small_model(), small_model()
    first.save(tmp_path / "m.safetensors")
    assert firm.load(tmp_path / "m.safetensors").fingerprint() == first.fingerprint()
    next(moved.estimator.parameters()).data.view(-1)[5] += 1e-6
    others = [small_model(1), small_model(time_scale=100.0), firm.Firm(first.estimator, firm.Solver(K=2)), moved]
    assert len({model.fingerprint() for model in (first, *others)}) == 5


def test_names_that_are_there_twice(evaluation, tmp_path):
    tasks = [firm.Task("denoising", SIZE), firm.Task("denoising", SIZE, sigma=0.1)]
    with pytest.raises(ValueError, match="two tasks are called denoising"):
        evaluate(replace(evaluation, tasks=tasks), [], tmp_path, progress=False)
    with pytest.raises(ValueError, match="two methods are called data-consistency, degraded"):
        evaluate(evaluation, 2 * plain_methods(), tmp_path, progress=False)
    assert not list(tmp_path.iterdir())


def test_settings_change_every_task_that_has_them(pictures, evaluation, tmp_path):
    changes = [word for change in ("sigma=0.125", "missing=0.25", "mask=fresh") for word in ("--set", change)]
    done = command(pictures, tmp_path / "a", "degraded", *changes, tasks="denoising,random-inpainting,fourier")
    assert done.exit_code == 0, done.output
    tasks = json.loads((tmp_path / "a" / "config.json").read_text())["tasks"]
    assert [t["sigma"] for t in tasks.values()] == [0.125] * 3
    assert tasks["random-inpainting"]["missing"] == 0.25
    assert [t.get("mask") for t in tasks.values()] == [None, "fresh", "fresh"]
    by_hand = evaluation.images.batch(slice(0, 3))
    _, y = firm.Task("denoising", SIZE, sigma=0.125).measure(by_hand)
    found = [float(row["psnr"]) for row in csv_rows(tmp_path / "a")[::2][:3]]
    assert found == pytest.approx(firm.metrics.psnr(y, by_hand).tolist(), abs=1e-4)
    told = command(pictures, tmp_path / "a", "degraded", set="sigma=0.25")  # the folder's denoising has another noise
    assert says(told.output, "another evaluation (different denoising)")


@pytest.mark.parametrize(("change", "message"), [
    ("sigma=-1", "must be 0 or more"), ("sigma", "--set takes key=value"), ("box=3", "has a setting box"),
    ("sgima=1", "did you mean 'sigma'"), ("sigma=[0.1, 0.2]", "a range is for training"),
])  # fmt: skip
def test_settings_that_no_task_takes(change, message, pictures, tmp_path):
    told = command(pictures, tmp_path / "o", "degraded", set=change)
    assert (told.exit_code, says(told.output, message)) == (2, True), told.output


def test_more_tasks_extend_a_run_but_other_data_do_not(pictures, tmp_path):
    for tasks in ("denoising", "denoising, fourier"):
        assert command(pictures, tmp_path, "degraded", tasks=tasks).exit_code == 0
    for change in ({"seed": 1}, {"convention": "text"}, {"limit": 2}):
        told = command(pictures, tmp_path, "degraded", **change)
        assert (told.exit_code, says(told.output, "another evaluation")) == (2, True)
    assert len(csv_rows(tmp_path)) == 2 * 2 * 3


def test_only_what_is_missing_is_computed(evaluation, tmp_path):
    calls = []

    def method(op, y, sigma, generator):
        calls.append(len(y))
        return op.A_adjoint(y)

    for fingerprint, expected in (("a", 3), ("a", 3), ("b", 6), ("b", 6), ("a", 6)):
        rows = evaluate(evaluation, [NamedMethod("m", method, fingerprint=fingerprint)], tmp_path, progress=False)
        assert (len(rows), sum(calls)) == (3, expected)
        assert {row["fingerprint"] for row in rows} == {fingerprint}
    lines = (tmp_path / "images.csv").read_text().splitlines()
    (tmp_path / "images.csv").write_text("\n".join([*lines[:2], *lines[3:]]) + "\n")
    evaluate(evaluation, [NamedMethod("m", method, fingerprint="a")], tmp_path, progress=False)
    assert sum(calls) == 7


# Damage


@pytest.fixture
def finished(pictures, tmp_path):
    assert command(pictures, tmp_path / "o", "degraded").exit_code == 0
    return tmp_path / "o"


LISTED = '{"files": 1, "size": 2, "convention": 3, "seed": 4, "tasks": []}'


@pytest.mark.parametrize("text", ["{", "7", LISTED, "\0\x01", "[" * 9999])
def test_a_damaged_configuration(text, finished, pictures):
    (finished / "config.json").write_text(text)
    told = command(pictures, finished, "degraded")
    assert (told.exit_code, says(told.output, "config.json is damaged")) == (2, True)
    assert (finished / "config.json").read_text() == text  # left as it was


def test_rows_without_their_configuration_are_not_taken(finished, pictures):
    (finished / "config.json").unlink()
    told = command(pictures, finished, "degraded")
    assert (told.exit_code, says(told.output, "config.json is gone")) == (2, True)


@pytest.mark.parametrize("name", ["config.json", "images.csv"])
def test_links_and_pipes_are_not_followed(name, finished, pictures, tmp_path):
    for plant in (lambda: (finished / name).symlink_to(tmp_path / "new"), lambda: os.mkfifo(finished / name)):
        (finished / name).unlink(missing_ok=True)
        plant()
        told = command(pictures, finished, "degraded")
        assert (told.exit_code, says(told.output, f"{name} is no plain file")) == (2, True)
        assert not (tmp_path / "new").exists()


DAMAGE = [("psnr", "abc"), ("ssim", "nan"), ("psnr", ""), ("index", "1.5"), ("index", "-1"), ("file", "x.png"),
          ("method", ""), ("nfe", "none"), ("peak_mb", None), (None, "7")]  # fmt: skip


@pytest.mark.parametrize(("column", "value"), DAMAGE)
def test_a_damaged_line_is_named(column, value, finished, pictures):
    table, text = finished / "images.csv", io.StringIO()
    rows = csv_rows(finished)
    writer = csv.writer(text)
    cells = [list(row.values()) for row in rows]
    if column is None:
        cells[2].append(value)  # one too many
    elif value is None:
        cells[2].pop()
    else:
        cells[2][list(rows[0]).index(column)] = value
    writer.writerows([list(rows[0]), *cells])
    table.write_bytes(text.getvalue().encode())
    told = command(pictures, finished, "degraded")
    assert (told.exit_code, says(told.output, "images.csv: line 4 is damaged")) == (2, True)
    assert table.read_bytes() == text.getvalue().encode()
    lines = text.getvalue().splitlines(keepends=True)
    table.write_bytes("".join(lines[:3] + lines[4:]).encode())  # as the message says
    assert command(pictures, finished, "degraded").exit_code == 0
    assert len(csv_rows(finished)) == 6


@pytest.mark.parametrize("data", [bytes(range(256)), b"\xff", b'"a\n', b"1\n2\n", b"task,method,index\na,b,1\n", None])
def test_a_table_that_is_none(data, finished, pictures):
    table = finished / "images.csv"
    if data is None:
        table.unlink()
        table.mkdir()
    else:
        table.write_bytes(data)
    told = command(pictures, finished, "degraded")
    assert (told.exit_code, says(told.output, "images.csv")) == (2, True)
    assert table.is_dir() if data is None else table.read_bytes() == data


def test_names_of_any_kind_and_lines_that_are_there_twice(evaluation, tmp_path):
    names = ["a,b\u2028c.png", "new\nline.png", "bytes\udcff.png"]
    evaluation = replace(evaluation, images=Images(evaluation.images.data, names))
    first = evaluate(evaluation, plain_methods(), tmp_path, progress=False)
    table = (tmp_path / "images.csv").read_bytes()
    assert evaluate(evaluation, plain_methods(), tmp_path, progress=False) == first
    assert (tmp_path / "images.csv").read_bytes() == table
    (tmp_path / "images.csv").write_bytes(table + table[table.index(b"\n") + 1 :])
    assert evaluate(evaluation, plain_methods(), tmp_path, progress=False) == first


# Two commands


def test_a_second_command_stops_before_it_touches_anything(finished, pictures, evaluation):
    before = (finished / "images.csv").read_bytes()
    with held_by_another(finished):
        told = command(pictures, finished, "degraded", seed=1)
        assert (told.exit_code, says(told.output, "is in use by firm evaluate of somebody else")) == (2, True)
        with pytest.raises(files.LockedError):
            evaluate(evaluation, plain_methods(), finished, progress=False)
    assert (finished / "images.csv").read_bytes() == before


def test_restore_and_train_and_reproduce_stop_too(pictures, tmp_path):
    out = tmp_path / "o"
    settings = tmp_path / "c.yaml"
    settings.write_text(
        f"dataset: folder\ndata: {pictures}\nsize: 16\ntask: denoising\nbatch_size: 2\nepochs: 1\nout: {out}\n"
        "warm_start_epochs: 0\nnetwork: {ch: 8, mult: [1], blocks: 1, attention: [], groups: 4}\n"
    )
    model = ["--model", save_model(tmp_path / "m" / "model.safetensors", 0), "--out", out]
    commands = [
        ["restore", pictures, "--simulate", "denoising", *model],
        ["train", settings],
        ["reproduce", "toy", "--training", "1", "--out", out],
        ["reproduce", "portrait", *model],
    ]
    for words in commands:
        held = out / (words[1] if words[0] == "reproduce" else "")
        with held_by_another(held):
            told = call(*words)
            assert (told.exit_code, words) == (2, words), told.output
            assert says(told.output, "is in use by firm evaluate of somebody else"), words
            assert sorted(path.name for path in held.iterdir()) == [files.NAME, files.HOLDER]
