"""What all studies share: the catalog, the commands, the record that each leaves, the list, and running all of them."""

import json
import subprocess
import sys
from dataclasses import replace
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
from experiments.shared import Figure, Settings, record
from experiments.tables import Column, Line, Table, markdown, read_table
from firm.cli import reproduce as command

ROOT = Path(__file__).parents[2]
NAMES = [study.name for study in STUDIES]
BY_NAME = {study.name: study for study in STUDIES}
TABLE = Table("numbers", [Column("x", "x", better="high")], [Line("a", {"x": 1.5}, {"x": 2.5}), Line("b", {"x": 0.5})])
THREE = ("first", "second", "third")


def test_every_study_can_be_run():
    for i, study in enumerate(STUDIES):
        run = import_module(f"experiments.{study.file}").study
        assert list(signature(run).parameters) == ["settings", "name"]
        assert set(study.options) <= set(command.OPTIONS)
        assert set(study.data) <= set(LAYOUTS)
        assert study.quick > 0
        assert study.full > 0
        assert set(study.after) <= set(NAMES[:i])  # it comes after those whose results it reads
    assert len(set(NAMES)) == len(NAMES)
    assert sum(study.quick for study in STUDIES) < 30  # minutes: what --quick promises


def test_every_study_is_a_command_with_its_options_and_no_others():
    commands = typer.main.get_command(command.app).commands
    assert list(commands) == ["list", "all", "report", *NAMES]
    for study in STUDIES:
        found = {parameter.name: parameter.default for parameter in commands[study.name].params}
        assert found.keys() == {"out", "quick", "device", *study.options, *study.data}
        for name in found.keys() & vars(Settings()).keys() - {"device"}:
            assert found[name] == vars(Settings())[name]  # what is not typed is left to the study
        assert study.title in commands[study.name].help


def test_an_installed_package_says_where_the_studies_are(tmp_path):
    """Its file as it is, in another folder."""
    (tmp_path / "src" / "firm" / "cli").mkdir(parents=True)
    file = tmp_path / "src" / "firm" / "cli" / "reproduce.py"
    file.write_text(Path(command.__file__).read_text() + "\napp()\n")
    for words in (["list"], ["celeba", "--data", "x"]):
        done = subprocess.run([sys.executable, str(file), *words], capture_output=True, text=True)
        assert done.returncode == 2
        assert says(done.stderr, "the studies come with a checkout of the repository")


@pytest.fixture
def small(monkeypatch):
    """A catalog of three studies that need nothing; the settings they were called with."""
    seen = {}

    def study(settings, name):
        seen[name] = settings
        if name == "second":
            raise ValueError("no such [thing]")
        return record(settings, name, tables=[TABLE], notes=["a [note]"])

    options = ("steps", "limit", "batches", "modes", "seed")
    studies = tuple(Study(name, "Table 9", f"the {name}", "none", 1, 2, (), options) for name in THREE)
    monkeypatch.setattr("experiments.catalog.import_module", lambda _: type("Module", (), {"study": study}))
    for module in ("catalog", "report"):
        monkeypatch.setattr(import_module(f"experiments.{module}"), "STUDIES", studies)
    return studies, seen


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


def test_a_record_has_everything(tmp_path, capsys):
    settings = Settings(tmp_path, quick=True, command="firm reproduce x", device=torch.device("cpu"))
    figures = [Figure("a.png", "closed"), Figure("b.png", "open", free=True)]
    given = {"images": 3, "model": "m", "notes": ["it [differs]"], "numbers": {"n": [1]}, "seed": 5}
    found = record(settings, "x", tables=[TABLE], figures=figures, **given)
    folder = tmp_path / "x"
    assert sorted(p.name for p in folder.iterdir()) == ["results.json", "table.md", "table.tex"]
    assert json.loads((folder / "results.json").read_text()) == found == read_record(folder)
    assert found | given | {"study": "x", "command": "firm reproduce x", "quick": True} == found
    assert set(found) == set(catalog.KEYS)
    assert [figure["free"] for figure in found["figures"]] == [False, True]
    assert (folder / "table.md").read_text() == markdown(TABLE) == markdown(read_table(found["tables"][0]))
    printed = capsys.readouterr().out
    files = f"table.md, table.tex, a.png, b.png, results.json in {folder}"
    assert all(says(printed, said) for said in ("numbers: ours (paper)", "* it [differs]", files))
    record(settings, "two", tables=[TABLE, replace(TABLE, title="more")])
    text = f"**numbers**\n\n{markdown(TABLE)}\n**more**\n\n{markdown(TABLE)}"
    assert (tmp_path / "two" / "table.md").read_text() == text
    assert (tmp_path / "two" / "table.tex").read_text().count(r"\begin{tabular}") == 2
    record(settings, "none")
    assert [p.name for p in (tmp_path / "none").iterdir()] == ["results.json"]


def test_a_damaged_record_is_an_error_that_says_what_to_do(tmp_path):
    assert read_record(tmp_path) is None
    record(Settings(tmp_path), "x", tables=[TABLE])
    path = tmp_path / "x" / "results.json"
    good = json.loads(path.read_text())
    wrong = {"seconds": "x", "quick": "yes", "machine": [], "figures": 1}
    damaged = [b"", b"[]", b"\xff\xfe"]
    damaged += [json.dumps({k: v for k, v in good.items() if k != key}).encode() for key in good]
    damaged += [json.dumps(good | {key: value}).encode() for key, value in wrong.items()]
    for data in damaged:
        path.write_bytes(data)
        with pytest.raises(ValueError, match=r"results\.json is damaged, or of another version of firm"):
            read_record(tmp_path / "x")


def listed(out, width, capsys, monkeypatch):
    """The line of every study and the one below it, and all that was printed."""
    monkeypatch.setenv("COLUMNS", str(width))
    overview(out)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= width
    places = {line.split(" ")[0]: i for i, line in enumerate(lines) if line.split(" ")[0] in NAMES}
    return {name: lines[i : i + 2] for name, i in places.items()}, " ".join(" ".join(lines).split())


def test_the_list_fits_into_80_columns(tmp_path, capsys, monkeypatch):
    lines, text = listed(tmp_path, 80, capsys, monkeypatch)
    for study in STUDIES:
        line, below = lines[study.name]
        assert line.split()[0] == study.name
        assert all(f"{word} " in line for word in (study.paper, minutes(study.quick), minutes(study.full)))
        assert (f"~{minutes(study.full)}" in line) == (not study.measured)
        assert line.endswith("  -")  # not run here
        assert below.startswith(f"    {study.title}")
        assert below.endswith("+ D-Flow)") == (study.name in ("cost", "qualitative"))
        assert ("--data" in below, "--afhq" in below) == ("celeba" in study.data, "afhq" in study.data)
        assert ("(trains" in below) == study.trains
    assert "needs the results of celeba and cost" in lines["pareto"][1]
    assert "marked + D-Flow take longer in full than the time shown" in text
    (tmp_path / "file").write_text("")
    told = call("reproduce", "list", "--out", tmp_path / "file").output
    assert says(told, "is a file, not the folder of the studies")


def test_times_that_are_called_measured_have_been():
    """By a record in experiments: in full, with all the methods that there were, on the machine that is named."""
    found = {}
    for path in (ROOT / "experiments").rglob("*.json"):
        record = json.loads(path.read_text())
        name = (
            "toy"
            if path.parts[-2:] == ("toy", "results.json")
            else record.get("study")
            if isinstance(record, dict)
            else None
        )
        if name is not None and not record.get("quick"):
            found[name] = record
    for study in [study for study in STUDIES if study.measured]:
        record, seconds = found[study.name], found[study.name]["seconds"]
        seconds = seconds["all"] if study.name == "toy" else seconds  # of an earlier form
        assert study.full == pytest.approx(seconds / 60, rel=0.15, abs=0.005)
        assert "--methods" not in record.get("command", "")
        assert record["machine"].get("gpu", "AMD EPYC").endswith(study.measured)
    page = (ROOT / "docs" / "reproduce.md").read_text()
    measured = [line for line in page.splitlines() if line.startswith("| measured on")]
    for study in STUDIES:
        assert bool(study.measured) == any(f"`{study.name}` " in line for line in measured)


def test_the_list_says_what_has_been_run(tmp_path, capsys, monkeypatch):
    for name, change in zip(NAMES[:3], ({"quick": True}, {"seconds": 7200}, {"quick": "damaged"}), strict=True):
        record(Settings(tmp_path), name)
        path = tmp_path / name / "results.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | change))
    lines, _ = listed(tmp_path, 120, capsys, monkeypatch)
    state = [lines[name][0].rsplit("  ", 1)[1].strip() for name in NAMES[:4]]
    assert state == ["quick, 0 s", "full, 2.0 h", "damaged", "-"]
    assert [minutes(value) for value in (0.1, 0.94, 0.95, 89, 90)] == ["6 s", "56 s", "1 min", "89 min", "1.5 h"]


def test_the_list_is_there_at_once(tmp_path):
    """It loads no torch, nor do the report and the help of these commands."""
    record(Settings(tmp_path), "toy")
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


def test_all_refuses_before_any_work_and_names_both_layouts(tmp_path, monkeypatch):
    monkeypatch.setattr(Study, "run", lambda *_: pytest.fail("ran"))
    missing = [", ".join(study.name for study in STUDIES if "celeba" in study.data) + " need CelebA", *LAYOUTS.values()]
    wrong = [f"{tmp_path / 'no'}: no such folder (CelebA, --data DIR", f"{tmp_path / 'test' / 'cat'}: no such folder"]
    for words, said in (([], missing), (["--data", tmp_path / "no", "--afhq", tmp_path], wrong)):
        result = call("reproduce", "all", "--quick", *words, "--out", tmp_path / "o")
        assert result.exit_code == 2
        assert all(says(result.output, sentence) for sentence in said)
    assert not list(tmp_path.iterdir())


def test_one_that_fails_does_not_stop_the_others(small, tmp_path):
    result = call("reproduce", "all", "--quick", "--out", tmp_path)
    assert result.exit_code == 1, result.output
    assert list(small[1]) == list(THREE)
    assert all(settings.quick for settings in small[1].values())
    assert "second failed: no such [thing]" in result.output
    assert result.output.splitlines()[-1] == "failed: second"
    assert says(result.output, "3 studies, about 3 min in all")
    assert all(read_record(tmp_path / name) is not None for name in ("first", "third"))
    assert (tmp_path / "report.html").is_file()
    assert not list(tmp_path.glob(".*"))  # the lock is gone


def test_all_may_go_well_or_fail(small, tmp_path, monkeypatch):
    monkeypatch.setattr(catalog, "STUDIES", small[0][1:2])
    result = call("reproduce", "all", "--out", tmp_path)
    assert (result.exit_code, "second failed" in result.output) == (1, True)
    assert not (tmp_path / "report.html").exists()  # there is nothing to report
    monkeypatch.setattr(catalog, "STUDIES", small[0][:1])
    result = call("reproduce", "all", "--out", tmp_path)
    assert (result.exit_code, "failed" in result.output) == (0, False)
    again = call("reproduce", "all", "--out", tmp_path)
    assert says(again.output, "first (Table 9): the first; took 0 s here before")
    quick = call("reproduce", "all", "--quick", "--out", tmp_path)
    assert says(quick.output, "about 1 min on two cores of an AMD EPYC")  # a full run says nothing of a quick one
    monkeypatch.setattr(Study, "run", lambda *_: {}["missing"])
    assert isinstance(call("reproduce", "all", "--out", tmp_path).exception, KeyError)  # our mistakes are not hidden


def test_what_contradicts_itself_is_refused(tmp_path):
    result = call("reproduce", "toy", "--quick", "--training", "5", "--out", tmp_path)
    assert (result.exit_code, says(result.output, "--quick trains nothing: leave out --training")) == (2, True)
