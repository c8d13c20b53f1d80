"""The documents do as they say: their code runs, their commands exist, their links lead somewhere."""

import dataclasses
import inspect
import os
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
import torch
import typer
from PIL import Image
from typer.testing import CliRunner

import firm
from firm.cli import app
from firm.training.config import load_config

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(p for p in DOCS.glob("*.md"))
DOCUMENTS = [
    *PAGES,
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "LICENSE-WEIGHTS.md")),
    *(p for folder in ("experiments", "examples", "baselines", "src") for p in sorted((ROOT / folder).rglob("*.md"))),
]
ELSEWHERE = {  # whose code another test runs
    "own-operator.md": "tests/test_examples.py",
    "demo.md": "tests/demo/test_api.py",
}
FENCE = re.compile(r"^```(\S*)([^\n]*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
GALLERY = {path.stem: path.read_text() for path in sorted((ROOT / "examples" / "gallery").glob("plot_*.py"))}
SHALLOW = pytest.mark.filterwarnings("ignore:A x differs from y")  # where `quick` models make one iteration
FEWER = {  # what the tests change in programs, so that they take seconds
    "STEPS = 200": "STEPS = 4",
    "n=4000": "n=100",
    '**settings("pnp-hqs", "deblurring")': '**settings("pnp-hqs", "deblurring") | {"steps": 2}',
}


def blocks(page, language):
    """The code blocks of a page in one language, but for those marked `notest`."""
    found = FENCE.findall(page.read_text())
    return [text for kind, more, text in found if kind == language and "notest" not in more]


def commands(page):
    """Every ``firm ...`` command in the code blocks of a page, also under torchrun, without its comment."""
    for _, _, text in FENCE.findall(page.read_text()):
        for line in text.replace("\\\n", " ").splitlines():
            line = re.sub(r"^(srun )?torchrun .* -m firm ", "firm ", line.strip())
            if line.startswith("firm "):
                yield shlex.split(re.sub(r"\s#.*", "", line).replace("…", ""))


def shortened(program):
    for full, few in FEWER.items():
        program = program.replace(full, few)
    return program


def needs(program):
    """Skip the test where a package that the program imports is not installed."""
    for extra in re.findall(r"^(?:import|from) (skimage|deepinv)", program, re.MULTILINE):
        pytest.importorskip(extra)


@pytest.fixture
def workplace(tmp_path, monkeypatch):
    """A folder with what the pages take for granted: a face, a photo with a mask, small enough to be quick."""
    monkeypatch.chdir(tmp_path)
    face = ((firm.data.portrait()[0].permute(1, 2, 0) + 1) * 127.5).round().byte().numpy()
    Image.fromarray(face).save("face.png")
    noise = np.random.default_rng(0).normal(0, 10, (64, 72, 3))
    Image.fromarray((face[20:84, 20:92] + noise).clip(0, 255).astype(np.uint8)).save("photo.png")
    mask = np.zeros((64, 72), np.uint8)
    mask[20:30, 20:40] = 255
    Image.fromarray(mask).save("mask.png")
    return tmp_path


@pytest.fixture
def quick(monkeypatch):
    """Models make one iteration, not five: enough to see that the code around them runs."""
    load = firm.load

    def loaded(*args, **kwargs):
        model = load(*args, **kwargs)
        model.solver = dataclasses.replace(model.solver, K=1)
        return model

    monkeypatch.setattr(firm, "load", loaded)


def assumed():
    """Names that the pages use without making them."""
    return {"mask": torch.ones(64, 64), "y": torch.zeros(1, 3, 64, 64)}


@SHALLOW
@pytest.mark.parametrize(
    "page", [p for p in PAGES if p.name not in ELSEWHERE and blocks(p, "python")], ids=lambda p: p.stem
)
def test_the_python_of_a_page_runs(page, workplace, quick):
    names = assumed() if page.name == "all-options.md" else {}
    for program in blocks(page, "python"):
        needs(program)
        exec(compile(shortened(program), page.name, "exec"), names)


@pytest.mark.parametrize(
    "page", [p for p in PAGES if p.name not in ELSEWHERE and blocks(p, "sh")], ids=lambda p: p.stem
)
def test_the_commands_of_a_page_run(page, workplace):
    for text in blocks(page, "sh"):
        for line in text.replace("\\\n", " ").splitlines():
            program, *arguments = shlex.split(line, comments=True)
            assert program == "firm", f"{line}: only firm can be run here; leave out the word sh"
            result = CliRunner().invoke(app, arguments)
            assert result.exit_code == 0, f"{line}\n{result.output}"


def test_the_code_that_is_run_elsewhere_is():
    for page, test in ELSEWHERE.items():
        assert page.removesuffix(".md") in (ROOT / test).read_text()


@pytest.mark.parametrize("page", [p for p in DOCUMENTS if list(commands(p))], ids=lambda p: str(p.relative_to(ROOT)))
def test_every_command_exists_with_its_options(page):
    """Placeholders such as MODEL and DIR are not there; the names of commands, options and settings must be."""
    group = typer.main.get_command(app)
    for arguments in commands(page):
        command, path = group, ["firm"]
        rest = arguments[1:]
        while hasattr(command, "commands") and rest:
            path.append(rest.pop(0))
            command = command.get_command(None, path[-1])
            assert command is not None, f"{page.name}: {' '.join(path)} is no command"
        options = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
        given = {word.partition("=")[0] for word in rest if re.match(r"--[a-z]|-[a-z]$", word)}
        assert given <= options | {"--help"}, f"{page.name}: {' '.join(arguments)}: {given - options}"
        if path[-1] == "train" and rest and (ROOT / rest[0]).is_file():
            check_settings(rest)


def check_settings(rest):
    keys = {word.partition("=")[0].split(".")[0] for word in rest[1:] if re.match(r"[a-z_0-9A-Z.]+=", word)}
    assert keys <= set(vars(load_config(ROOT / rest[0], ["data=x"]))), f"{rest}: {keys}"


def anchors(path):
    """The anchors of a Markdown file's headings, as GitHub and MyST make them."""
    headings = re.findall(r"^#+ (.*)$", FENCE.sub("", path.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", h.lower().replace("`", "")).strip().replace(" ", "-") for h in headings}


@pytest.mark.parametrize("page", DOCUMENTS, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    wrong = []
    for target, anchor in re.findall(r"\]\(([^)#\s]*)(#[^)\s]*)?\)", FENCE.sub("", page.read_text())):
        if re.match(r"https?:", target):
            continue
        file = Path(os.path.normpath(page.parent / target)) if target else page
        if not file.exists() or (anchor and anchor[1:] not in anchors(file)):
            wrong.append(target + anchor)
    assert wrong == []


def test_every_page_is_in_the_index():
    listed = re.findall(r"^(\S+)$", "\n".join(blocks(DOCS / "index.md", "{toctree}")), re.MULTILINE)
    assert {p.stem for p in PAGES} - {"index"} <= set(listed)
    assert {f"results/{p.parent.name}" for p in (ROOT / "experiments").rglob("*/README.md")} <= set(listed)


def test_the_messages_of_the_faq_exist():
    source = "".join(p.read_text() for p in (ROOT / "src").rglob("*.py"))
    source = re.sub(r'"\s*\n\s*f?"', "", source)  # strings that go on in the next line
    told = re.findall(r"^### `(.*)`$", (DOCS / "faq.md").read_text(), re.MULTILINE)
    assert len(told) > 10
    assert [message for message in told if message not in source and "torchvision" not in message] == []


def test_the_version_stands_in_one_place():
    assert f"version: {firm.__version__}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"## {firm.__version__}" in (ROOT / "CHANGELOG.md").read_text()
    assert "\nversion =" not in (ROOT / "pyproject.toml").read_text().split("[tool")[0]


def test_the_reference_has_every_public_package():
    pages = re.findall(r"^api/(\S+)$", (DOCS / "api.md").read_text(), re.MULTILINE)
    public = {name for name in firm.__all__ if inspect.ismodule(getattr(firm, name))}
    packages = {f"firm.{name}" for name in public} - {"firm.bench"}
    assert packages | {"firm", "firm.restoration.calibration"} == set(pages)


@SHALLOW
@pytest.mark.parametrize("name", GALLERY)
def test_a_gallery_example_runs(name, quick):
    plt = pytest.importorskip("matplotlib.pyplot")
    program = shortened(GALLERY[name])
    needs(program)
    plt.switch_backend("agg")
    exec(compile(program, name, "exec"), {})
    assert plt.get_fignums()
    plt.close("all")


def test_the_gallery_is_there_and_what_makes_it_quick_too():
    assert len(GALLERY) >= 8
    assert [text for text in FEWER if sum(text in program for program in GALLERY.values()) != 1] == []


def test_the_example_of_the_readme_runs(capsys):
    (program,) = blocks(ROOT / "README.md", "python")
    assert len([line for line in program.splitlines() if line.strip()]) <= 10
    exec(program, {})
    error, spread, calls = map(float, re.findall(r"[0-9.]+[0-9]", capsys.readouterr().out))
    assert 0 < error < 0.05
    assert 0 < spread < 0.05
    assert calls == 20


def test_an_operator_of_ones_own_is_made_as_shown():
    calls = re.findall(r"`(firm\.operators\.from_functions\(.*?\))`", (DOCS / "start.md").read_text())
    x, y = torch.ones(1, 3, 128, 128), torch.zeros(1, 3, 128, 128)
    for call in calls:
        op = eval(call, {"firm": firm, "A": lambda x: 2 * x, "A_adjoint": lambda y: 2 * y})
        torch.testing.assert_close(firm.operators.data_consistency(op, x, y, 1.0), x / 5)
    assert ["A_adjoint" in call for call in calls] == [True, False]
