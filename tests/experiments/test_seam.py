"""What all studies share: the catalog, the record that each leaves, the list, and running all of them."""

import json
import subprocess
import sys
from dataclasses import fields, replace
from importlib import import_module
from inspect import signature
from pathlib import Path

import pytest
import torch
import typer
from helpers import call, says
from typer.testing import CliRunner

from experiments import catalog
from experiments.catalog import LAYOUTS, STUDIES, Study, minutes, overview, read_record
from experiments.shared import AFHQ, CELEBA, Clock, Figure, Settings, record
from experiments.tables import Column, Line, Table, markdown, read_table
from firm._util.locks import LockedError
from firm.cli import app
from firm.cli import reproduce as command

NAMES = [study.name for study in STUDIES]
find = {study.name: study for study in STUDIES}.get


# The catalog


def test_every_study_can_be_run():
    for study in STUDIES:
        run = import_module(f"experiments.{study.file}").study
        assert list(signature(run).parameters) == ["settings", "name"]
        assert set(study.options) <= set(command.OPTIONS)
        assert set(study.data) <= set(LAYOUTS)
        assert study.quick > 0
        assert study.full > 0
    assert len(set(NAMES)) == len(NAMES)
    assert not {"list", "all", "report", "evaluations"} & set(NAMES)  # commands, and a folder beside the studies
    assert sum(study.quick for study in STUDIES) < 30  # minutes: what --quick promises


def test_a_study_comes_after_those_whose_results_it_reads():
    for i, study in enumerate(STUDIES):
        assert set(study.after) <= set(NAMES[:i])


def test_every_study_is_a_command_with_its_options_and_no_others():
    commands = typer.main.get_command(app).commands["reproduce"].commands
    assert list(commands) == ["list", "all", "report", *NAMES]
    for study in STUDIES:
        found = {parameter.name for parameter in commands[study.name].params}
        assert found == {"out", "quick", "device", *study.options, *study.data}
        assert study.title in commands[study.name].help


# What is typed reaches the study


@pytest.fixture
def small(monkeypatch):
    """A catalog of three studies that need nothing; the settings they were called with."""
    seen = {}

    def study(settings, name):
        seen[name] = settings
        if name == "second":
            raise ValueError("no such [thing]")
        return record(settings, name, Clock(), tables=[TABLE], notes=["a [note]"])

    options = ("steps", "limit", "batches", "modes", "seed")
    studies = tuple(Study(name, "Table 9", f"the {name}", "none", 1, 2, (), options) for name in NUMBERS)
    monkeypatch.setattr("experiments.catalog.import_module", lambda _: type("Module", (), {"study": study}))
    for module in ("catalog", "report"):
        monkeypatch.setattr(import_module(f"experiments.{module}"), "STUDIES", studies)
    return studies, seen


NUMBERS = ("first", "second", "third")
TABLE = Table("numbers", [Column("x", "x", better="high")], [Line("a", {"x": 1.5}, {"x": 2.5}), Line("b", {"x": 0.5})])


def test_options_become_settings(small, tmp_path, monkeypatch):
    (first, *_), seen = small
    own = typer.Typer()
    own.command("other")(lambda: None)
    monkeypatch.setattr(command, "app", own)
    command._add("first", "the first", ["out", "quick", "device", *first.options])
    words = ["first", "--steps", "2,4", "--limit", "3", "--batches", "1,2", "--modes", "plain,fast", "--seed", "7",
             "--quick", "--out", str(tmp_path), "--device", "cpu"]  # fmt: skip
    monkeypatch.setattr(sys, "argv", ["firm", "reproduce", *words])
    result = CliRunner().invoke(own, words)
    assert result.exit_code == 0, result.output
    settings = seen["first"]
    assert (list(settings.steps), settings.limit, settings.quick) == ([2, 4], 3, True)
    assert (settings.out, settings.device) == (tmp_path, torch.device("cpu"))
    assert settings.extra == {"batches": [1, 2], "modes": ["plain", "fast"], "seed": 7}
    assert read_record(tmp_path / "first")["command"] == " ".join(["firm", "reproduce", *words])
    assert says(result.output, "first (Table 9): the first; about 1 min on two cores")


def test_the_defaults_are_those_of_the_settings():
    """What is not typed is left to the study."""
    usual = {field.name: getattr(Settings(), field.name) for field in fields(Settings)}
    for name, (_, default) in command.OPTIONS.items():
        if name in usual:
            assert default == usual[name], name


def test_how_many_images():
    assert Settings().images(100) == 100
    assert Settings(quick=True).images(100) == 10
    assert Settings(quick=True).images(3) == 3
    assert Settings(quick=True, limit=25).images(100) == 25


def test_a_data_set_that_was_not_given():
    for subject, option in ((CELEBA, "--data"), (AFHQ, "--afhq")):
        with pytest.raises(ValueError, match=f"this needs .*{option} DIR"):
            Settings().data(subject)
    assert Settings(celeba=Path("a"), afhq=Path("b")).data(AFHQ) == Path("b")
    assert Settings(celeba=Path("a"), afhq=Path("b")).data(CELEBA) == Path("a")


# The record


def test_a_record_has_everything(tmp_path, capsys):
    settings = Settings(tmp_path, quick=True, command="firm reproduce x", device=torch.device("cpu"))
    figures = [Figure("a.png", "closed"), Figure("b.png", "open", free=True)]
    found = record(settings, "x", Clock(), images=3, model="m", tables=[TABLE], figures=figures,
                   notes=["it [differs]"], numbers={"n": [1]}, seed=5)  # fmt: skip
    folder = tmp_path / "x"
    assert sorted(p.name for p in folder.iterdir()) == ["results.json", "table.md", "table.tex"]
    assert json.loads((folder / "results.json").read_text()) == found == read_record(folder)
    given = {"study": "x", "command": "firm reproduce x", "quick": True, "images": 3, "model": "m", "seed": 5,
             "notes": ["it [differs]"], "numbers": {"n": [1]}}  # fmt: skip
    assert found | given == found
    assert set(found) == set(catalog.KEYS)
    assert found["machine"]["torch"] == torch.__version__
    assert [figure["free"] for figure in found["figures"]] == [False, True]
    assert (folder / "table.md").read_text() == markdown(TABLE) == markdown(read_table(found["tables"][0]))
    printed = capsys.readouterr().out
    assert says(printed, "numbers: ours (paper)")
    assert "* it [differs]" in printed
    assert says(printed, f"table.md, table.tex, a.png, b.png, results.json in {folder}")


def test_several_tables_are_told_apart_and_none_leaves_no_file(tmp_path):
    record(Settings(tmp_path), "two", Clock(), tables=[TABLE, replace(TABLE, title="more")])
    text = (tmp_path / "two" / "table.md").read_text()
    assert text == f"**numbers**\n\n{markdown(TABLE)}\n**more**\n\n{markdown(TABLE)}"
    assert (tmp_path / "two" / "table.tex").read_text().count(r"\begin{tabular}") == 2
    record(Settings(tmp_path), "none", Clock())
    assert [p.name for p in (tmp_path / "none").iterdir()] == ["results.json"]


def test_a_damaged_record_is_an_error_that_says_what_to_do(tmp_path):
    assert read_record(tmp_path) is None
    record(Settings(tmp_path), "x", Clock(), tables=[TABLE])
    path = tmp_path / "x" / "results.json"
    good = json.loads(path.read_text())
    damaged = [b"", b"{", b"[]", b"\xff\xfe", json.dumps(good).encode()[:-9]]
    damaged += [json.dumps({k: v for k, v in good.items() if k != key}).encode() for key in good]
    damaged += [json.dumps(good | {key: wrong}).encode() for key, wrong in (
        ("seconds", "x"), ("quick", "yes"), ("machine", []), ("tables", {}), ("notes", "x"), ("figures", 1),
    )]  # fmt: skip
    for data in damaged:
        path.write_bytes(data)
        with pytest.raises(ValueError, match=r"results\.json is damaged, or of another version of firm: run the study"):
            read_record(tmp_path / "x")
    path.write_text(json.dumps(good))
    assert read_record(tmp_path / "x") == good


# The list


def listed(out, width, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    overview(out)
    return capsys.readouterr().out


def test_the_list_fits_into_80_columns(tmp_path, capsys, monkeypatch):
    lines = listed(tmp_path, 80, capsys, monkeypatch).splitlines()
    assert max(map(len, lines)) <= 80
    for study in STUDIES:
        (i,) = [i for i, line in enumerate(lines) if line.split(" ")[0] == study.name]
        assert study.paper in lines[i]
        assert minutes(study.quick) in lines[i]
        assert f" {'' if study.measured else '~'}{minutes(study.full)} " in lines[i]
        assert lines[i + 1].endswith("+ D-Flow)") == (study.name in ("cost", "qualitative"))
        assert lines[i].endswith("  -")  # not run here
        assert lines[i + 1].startswith(f"    {study.title}")
        assert ("--data" in lines[i + 1], "--afhq" in lines[i + 1]) == ("celeba" in study.data, "afhq" in study.data)
    pareto = next(line for line in lines if "quality against time" in line)
    assert "needs the results of celeba and cost" in pareto
    assert "marked + D-Flow take longer in full than the time shown" in " ".join(" ".join(lines).split())


def test_times_that_are_called_measured_have_been():
    """By a record in experiments: in full, with all the methods that there were, on the machine that is named."""
    found = {}
    for path in (Path(__file__).parents[2] / "experiments").rglob("*.json"):
        record = json.loads(path.read_text())
        name = "toy" if path.parent.name == "toy" else record.get("study") if isinstance(record, dict) else None
        if name is not None and not record.get("quick"):
            found[name] = record
    for study in [study for study in STUDIES if study.measured]:
        record, seconds = found[study.name], found[study.name]["seconds"]
        seconds = seconds["all"] if study.name == "toy" else seconds  # of an earlier form
        assert study.full == pytest.approx(seconds / 60, rel=0.15, abs=0.005)
        assert "--methods" not in record.get("command", "")
        assert record["machine"].get("gpu", "AMD EPYC").endswith(study.measured)
    assert {study.name for study in STUDIES if study.measured} == {
        "afhq", "mismatch", "errors", "fourier", "calibration", "pareto", "trajectory", "toy",
    }  # fmt: skip
    page = (Path(__file__).parents[2] / "docs" / "reproduce.md").read_text()
    measured = [line for line in page.splitlines() if line.startswith("| measured on")]
    for study in STUDIES:
        assert bool(study.measured) == any(f"`{study.name}` " in line for line in measured)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("mismatch", "about 2 min on one H200"),
        ("toy", "about 3 min on two cores of an AMD EPYC"),
        ("steps", "estimated at 5 min on one H200"),
        ("qualitative", "estimated at 1 min on one H200, and D-Flow, which nobody has timed there"),
    ],
)
def test_an_estimate_is_called_one_before_the_work_too(name, said, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    catalog.announce([find(name)], Settings(tmp_path))
    assert capsys.readouterr().out.strip().endswith(f"; {said}")
    catalog.announce([find(name)], Settings(tmp_path, quick=True))
    assert capsys.readouterr().out.strip().endswith(f"; about {minutes(find(name).quick)} on two cores of an AMD EPYC")


def test_the_list_says_what_has_been_run(tmp_path, capsys, monkeypatch):
    first, second, third = NAMES[:3]
    record(Settings(tmp_path, quick=True), first, Clock())
    record(Settings(tmp_path), second, Clock())
    path = tmp_path / second / "results.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"seconds": 7200}))
    (tmp_path / third).mkdir()
    (tmp_path / third / "results.json").write_text("{")
    state = {}
    for line in listed(tmp_path, 120, capsys, monkeypatch).splitlines():
        if line.split()[:1] and line.split()[0] in NAMES:
            state[line.split()[0]] = line.rsplit("  ", 1)[1].strip()
    assert [state[name] for name in NAMES[:4]] == ["quick, 0 s", "full, 2.0 h", "damaged", "-"]


def test_the_list_is_there_at_once(tmp_path):
    """It loads no torch, nor do the report and the help of these commands."""
    record(Settings(tmp_path), "toy", Clock())
    program = (
        "import sys\nfrom firm.cli import app\n"
        "try:\n    app(sys.argv[1:])\nfinally:\n    print('torch' if 'torch' in sys.modules else 'light')"
    )
    here = ["--out", str(tmp_path)]
    light = [["reproduce", "list", *here], ["reproduce", "report", *here], ["reproduce", "--help"], ["reproduce"],
             ["reproduce", "toy", "--help"], ["--version"], ["nonsense"]]  # fmt: skip
    for words in (*light, ["models"]):
        done = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True)
        assert done.stdout.splitlines()[-1] == ("light" if words in light else "torch"), (words, done.stderr)


@pytest.mark.parametrize(
    ("value", "said"), [(0.1, "6 s"), (0.9, "54 s"), (0.95, "1 min"), (89, "89 min"), (90, "1.5 h"), (600, "10.0 h")]
)
def test_times_as_people_say_them(value, said):
    assert minutes(value) == said


# All of them


def test_all_refuses_before_any_work_and_names_both_layouts(tmp_path, monkeypatch):
    monkeypatch.setattr(Study, "run", lambda *_: pytest.fail("ran"))
    result = call("reproduce", "all", "--quick", "--out", tmp_path / "o")
    assert result.exit_code == 2
    assert says(result.output, ", ".join(study.name for study in STUDIES if "celeba" in study.data) + " need CelebA")
    for layout in LAYOUTS.values():
        assert says(result.output, layout)
    result = call("reproduce", "all", "--data", tmp_path / "no", "--afhq", tmp_path, "--out", tmp_path / "o")
    assert result.exit_code == 2
    assert says(result.output, f"{tmp_path / 'no'}: no such folder (CelebA, --data DIR")
    assert says(result.output, f"{tmp_path / 'test' / 'cat'}: no such folder")
    assert not list(tmp_path.iterdir())


def test_one_that_fails_does_not_stop_the_others(small, tmp_path):
    result = call("reproduce", "all", "--quick", "--out", tmp_path)
    assert result.exit_code == 1, result.output
    assert list(small[1]) == list(NUMBERS)
    assert all(settings.quick for settings in small[1].values())
    assert "second failed: no such [thing]" in result.output
    assert result.output.splitlines()[-1] == "failed: second"
    assert says(result.output, "3 studies, about 3 min in all")
    assert read_record(tmp_path / "first") is not None
    assert read_record(tmp_path / "third") is not None
    assert (tmp_path / "report.html").is_file()
    assert not list(tmp_path.glob(".*"))  # the lock is gone


def test_all_is_well(small, tmp_path, monkeypatch):
    monkeypatch.setattr(catalog, "STUDIES", small[0][:1])
    result = call("reproduce", "all", "--out", tmp_path)
    assert result.exit_code == 0, result.output
    assert "failed" not in result.output
    again = call("reproduce", "all", "--out", tmp_path)
    assert says(again.output, "first (Table 9): the first; took 0 s here before")
    quick = call("reproduce", "all", "--quick", "--out", tmp_path)
    assert says(quick.output, "about 1 min on two cores of an AMD EPYC")  # a full run says nothing of a quick one


def test_when_all_fail_there_is_nothing_to_report(small, tmp_path, monkeypatch):
    monkeypatch.setattr(catalog, "STUDIES", small[0][1:2])
    result = call("reproduce", "all", "--out", tmp_path)
    assert result.exit_code == 1
    assert "second failed" in result.output
    assert not (tmp_path / "report.html").exists()


def test_mistakes_of_ours_are_not_hidden(small, tmp_path, monkeypatch):
    monkeypatch.setattr(Study, "run", lambda *_: {}["missing"])
    result = call("reproduce", "all", "--out", tmp_path)
    assert isinstance(result.exception, KeyError)


HOLD = """
import sys
from firm._util.locks import folder_lock
with folder_lock(sys.argv[1]):
    print(1, flush=True)
    input()
"""


def test_a_study_is_kept_from_itself_however_it_is_started(tmp_path):
    """`all` and a single command write to the same folder."""
    settings = Settings(out=tmp_path, device=torch.device("cpu"))
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(settings.folder("portrait"))], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        process.stdout.readline()
        with pytest.raises(LockedError):
            find("portrait").run(settings)
        process.communicate(b"\n")


def test_what_contradicts_itself_is_refused(tmp_path):
    result = call("reproduce", "toy", "--quick", "--training", "5", "--out", tmp_path)
    assert result.exit_code == 2
    assert says(result.output, "--quick trains nothing: leave out --training")
    (tmp_path / "file").write_text("")
    result = call("reproduce", "list", "--out", tmp_path / "file")
    assert says(result.output, "is a file, not the folder of the studies")
