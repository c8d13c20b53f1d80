"""The folder of an evaluation: named so that models do not meet, damaged, held by another command; and the device."""

import csv
import io

import pytest
import torch
from helpers import call, held_by_another, save_celeba, save_pictures, says

import firm
from firm._util import locks
from firm.data import load_images
from firm.evaluation import Evaluation, NamedMethod, evaluate, plain_methods
from firm.evaluation.report import summarize, tables

SIZE = 16


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    return save_pictures(tmp_path_factory.mktemp("pictures"), 3, (20, 20))


def save_model(path, seed, card=None):
    torch.manual_seed(seed)
    net = firm.UNet(3, side=SIZE, ch=8, mult=(1,), blocks=1, attention=(), groups=4)
    path.parent.mkdir(exist_ok=True)
    firm.Firm(net, firm.Solver(K=1), card).save(path)


def test_models_of_the_same_file_name_have_folders_of_their_own(pictures, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save_model(tmp_path / "a" / "model.safetensors", 0)
    save_model(tmp_path / "b" / "model.safetensors", 1)
    save_model(tmp_path / "c" / "model.safetensors", 1, {"name": "cats 64"})
    common = ["--data", pictures, "--size", SIZE, "--tasks", "denoising", "--steps", "1", "--limit", "1"]
    for name in ("a", "b", "a", "c"):
        done = call("evaluate", f"{name}/model.safetensors", *common)
        assert done.exit_code == 0, done.output
    found = sorted(path.name for path in (tmp_path / "outputs").iterdir())
    assert [name[:-16] for name in found] == [f"evaluate-folder-{name}" for name in ("a", "b", "cats_64")]
    assert call("evaluate", "degraded", *common).exit_code == 0
    assert (tmp_path / "outputs" / "evaluate-folder-degraded-tables").is_dir()


# Damage


@pytest.fixture
def finished(pictures, tmp_path):
    common = ["evaluate", "degraded", "--data", pictures, "--size", SIZE, "--tasks", "denoising"]
    common += ["--out", tmp_path / "o"]
    assert call(*common).exit_code == 0
    return tmp_path / "o", common


LISTED = '{"files": 1, "size": 2, "convention": 3, "seed": 4, "tasks": []}'
CONFIGS = ["{", "7", "{}", LISTED, "\0\x01", "[" * 9999]


@pytest.mark.parametrize("text", CONFIGS)
def test_a_damaged_configuration(text, finished):
    out, common = finished
    (out / "config.json").write_text(text)
    told = call(*common)
    assert told.exit_code == 2
    assert says(told.output, "config.json is damaged")
    assert (out / "config.json").read_text() == text  # left as it was


def change(column, value):
    def damage(rows):
        rows[2][column] = value

    return damage


DAMAGE = {
    "a word for a number": change("psnr", "abc"),
    "NaN": change("ssim", "nan"),
    "no score": change("psnr", ""),
    "half an index": change("index", "1.5"),
    "a negative index": change("index", "-1"),
    "another picture": change("file", "x.png"),
    "no method": change("method", ""),
    "no calls": change("nfe", "none"),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
def test_a_damaged_line_is_named(damage, finished):
    out, common = finished
    rows = list(csv.DictReader((out / "images.csv").read_text().splitlines()))
    damage(rows)
    text = io.StringIO()
    writer = csv.DictWriter(text, rows[0].keys(), lineterminator="\r\n")
    writer.writeheader()
    writer.writerows(rows)
    (out / "images.csv").write_bytes(text.getvalue().encode())
    told = call(*common)
    assert told.exit_code == 2
    assert says(told.output, "images.csv: line 4 is damaged")
    assert (out / "images.csv").read_bytes() == text.getvalue().encode()
    lines = text.getvalue().splitlines(keepends=True)
    (out / "images.csv").write_bytes("".join(lines[:3] + lines[4:]).encode())  # as the message says
    assert call(*common).exit_code == 0
    assert len((out / "images.csv").read_text().splitlines()) == 7


@pytest.mark.parametrize("data", [bytes(range(256)), b"\xff", b'"a\n', b"1\n2\n"])
def test_a_table_that_is_none(data, finished):
    out, common = finished
    (out / "images.csv").write_bytes(data)
    told = call(*common)
    assert told.exit_code == 2
    assert says(told.output, "images.csv")
    assert (out / "images.csv").read_bytes() == data


def test_a_line_with_too_few_or_too_many_values(finished):
    out, common = finished
    lines = (out / "images.csv").read_text().splitlines()
    for broken in (lines[1].rpartition(",")[0], lines[1] + ",7"):
        (out / "images.csv").write_text("\n".join([lines[0], broken, *lines[2:]]) + "\n")
        told = call(*common)
        assert says(told.output, "line 2 is damaged")


def test_names_of_any_kind_and_lines_that_are_there_twice(pictures, tmp_path):
    images = load_images("folder", pictures, size=SIZE, progress=False)
    names = ["a,b\u2028c.png", "new\nline.png", "bytes\udcff.png"]
    evaluation = Evaluation(firm.data.Images(images.data, names), [firm.Task("denoising", SIZE)])
    first = evaluate(evaluation, plain_methods(), tmp_path, progress=False)
    table = (tmp_path / "images.csv").read_bytes()
    again = evaluate(evaluation, plain_methods(), tmp_path, progress=False)
    assert (tmp_path / "images.csv").read_bytes() == table
    assert again == first
    (tmp_path / "images.csv").write_bytes(table + table[table.index(b"\n") + 1 :])
    assert evaluate(evaluation, plain_methods(), tmp_path, progress=False) == first


# Two commands


def test_a_second_command_stops_before_it_touches_anything(finished):
    out, common = finished
    before = (out / "images.csv").read_bytes()
    with held_by_another(out):
        told = call(*common, "--seed", "1")
        assert told.exit_code == 2
        assert says(told.output, "is in use by firm evaluate of somebody else (process")
    assert (out / "images.csv").read_bytes() == before
    assert call(*common).exit_code == 0


def test_restore_and_train_and_reproduce_stop_too(pictures, tmp_path):
    save_model(tmp_path / "m" / "model.safetensors", 0)
    settings = tmp_path / "c.yaml"
    settings.write_text(
        f"dataset: folder\ndata: {pictures}\nsize: 16\ntask: denoising\nbatch_size: 2\nepochs: 1\n"
        "warm_start_epochs: 0\n"
        f"out: {tmp_path / 'o'}\n"
        "network: {ch: 8, mult: [1], blocks: 1, attention: [], groups: 4}\n"
    )
    model = ["--model", tmp_path / "m" / "model.safetensors", "--out", tmp_path / "o"]
    celeba = save_celeba(tmp_path / "celeba")
    commands = [
        ["restore", pictures, "--simulate", "denoising", *model],
        ["train", settings],
        ["reproduce", "toy", "--training", "1", "--out", tmp_path / "o"],
        ["reproduce", "portrait", *model],
        ["reproduce", "celeba", "--data", celeba, *model],
        ["reproduce", "cost", "--data", celeba, *model],
        ["reproduce", "pareto", "--out", tmp_path / "o"],
    ]
    for command in commands:
        held = tmp_path / "o" / (command[1] if command[0] == "reproduce" else "")
        with held_by_another(held):
            told = call(*command)
            assert (told.exit_code, command) == (2, command), told.output
            assert says(told.output, "is in use by firm evaluate of somebody else"), command
            assert sorted(path.name for path in held.iterdir()) == [locks.NAME, locks.HOLDER]


# What results depend on


def test_the_measurements_are_on_the_evaluations_device(pictures, tmp_path):
    images = load_images("folder", pictures, size=SIZE, progress=False)
    assert Evaluation(images, []).device.type == ("cuda" if torch.cuda.is_available() else "cpu")
    evaluation = Evaluation(images, [firm.Task("denoising", SIZE)], device="meta")
    with pytest.raises(NotImplementedError, match="meta tensor"):  # which has no values that could be measured
        evaluate(evaluation, plain_methods(), tmp_path, progress=False)


def test_seeds_and_conventions_change_the_numbers(pictures, tmp_path):
    """Also the noise that methods draw: it belongs to seed and image."""
    images = load_images("folder", pictures, size=SIZE, progress=False)
    drawn = []

    def method(op, y, sigma, generator):
        drawn.extend(float(torch.rand((), generator=one)) for one in generator)
        return op.A_adjoint(y) * 1.5  # beyond [-1, 1], where the conventions differ

    found = {}
    for seed, convention in ((42, "tables"), (1, "tables"), (42, "text")):
        evaluation = Evaluation(images, [firm.Task("denoising", SIZE)], convention, seed)
        rows = evaluate(evaluation, [NamedMethod("m", method)], tmp_path / f"{seed}{convention}", progress=False)
        found[seed, convention] = [(row["psnr"], row["ssim"]) for row in rows]
    assert len({*drawn[:6]}) == 6
    assert drawn[6:] == drawn[:3]
    first, other, text = found.values()
    assert all(a[0] != b[0] for a, b in zip(first, other, strict=True))
    assert all(a[0] == b[0] and a[1] != b[1] for a, b in zip(first, text, strict=True))


def test_only_what_is_missing_is_computed(pictures, tmp_path):
    images = load_images("folder", pictures, size=SIZE, progress=False)
    evaluation = Evaluation(images, [firm.Task("denoising", SIZE)])
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


def test_the_command_passes_its_options_on(pictures, tmp_path, monkeypatch):
    seen = []

    def record(evaluation, methods, out, **_):
        seen.append((evaluation.seed, evaluation.convention, evaluation.device))
        raise ValueError("far enough")

    monkeypatch.setattr("firm.evaluation.evaluate", record)
    monkeypatch.setattr("firm._util.distributed.choose_device", lambda name: torch.device(name or "cpu"))
    common = ["evaluate", "degraded", "--data", pictures, "--size", SIZE, "--tasks", "denoising", "--out", tmp_path]
    assert says(call(*common, "--seed", 7, "--convention", "text", "--device", "meta").output, "far enough")
    assert seen == [(7, "text", torch.device("meta"))]


def test_the_library_locks_too(pictures, tmp_path):
    images = load_images("folder", pictures, size=SIZE, progress=False)
    evaluation = Evaluation(images, [firm.Task("denoising", SIZE)])
    with held_by_another(tmp_path), pytest.raises(locks.LockedError):
        evaluate(evaluation, plain_methods(), tmp_path, progress=False)
    assert not list(tmp_path.iterdir())


def test_calls_that_depend_on_the_image_are_a_dash(pictures, tmp_path):
    images = load_images("folder", pictures, size=SIZE, progress=False)
    evaluation = Evaluation(images, [firm.Task("denoising", SIZE)])
    method = NamedMethod("mine", lambda op, y, sigma, generator: y, nfe=None, fingerprint="a")
    first, again = (evaluate(evaluation, [method], tmp_path, progress=False) for _ in range(2))
    assert [row["nfe"] for row in first] == [row["nfe"] for row in again] == [None] * len(images)
    (table,) = tables(summarize(again), "tables")
    assert list(table.columns[4].cells) == ["-"]
