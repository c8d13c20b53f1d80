"""`import firm` is light: little time over torch, and none of the heavy packages."""

import subprocess
import sys
from types import ModuleType

import pytest

import firm

PROGRAM = """
import time, torch
start = time.perf_counter()
import firm
print(time.perf_counter() - start)
import sys
heavy = ("torchvision", "matplotlib", "deepinv", "gradio", "torchmetrics", "typer", "rich")
print(" ".join(m for m in heavy if m in sys.modules))
"""


def test_import_is_light():
    runs = [
        subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True).stdout.split("\n")
        for _ in range(3)
    ]
    assert runs[0][1] == ""
    assert min(float(run[0]) for run in runs) < 0.15


def test_the_command_line_tells_its_version():
    result = subprocess.run([sys.executable, "-m", "firm", "--version"], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == f"firm {firm.__version__}"


def test_the_command_lines_choices_are_the_librarys():
    """They are written twice so that --help is quick; they must not drift apart."""
    from typing import get_args

    from firm.acceleration._fast import Precision
    from firm.cli import choices
    from firm.data.celeba import Split
    from firm.data.load import ImageSet
    from firm.metrics import conventions
    from firm.restoration import output

    pairs = [
        (choices.Dataset, ImageSet),
        (choices.Split, Split),
        (choices.Precision, Precision),
        (choices.Convention, conventions.Convention),
        (choices.Format, output.Format),
    ]
    for mine, theirs in pairs:
        assert get_args(mine) == get_args(theirs)


LAZY = """
import sys, firm
assert "torch" not in sys.modules, "import firm loads torch"
assert {"Firm", "load", "operators"} <= set(dir(firm))
assert "torch" not in sys.modules, "dir(firm) loads torch"
firm.Firm
assert "torch" in sys.modules
"""
FIRST = """
import importlib, os, sys, torch
for name in sys.argv[1:]:
    if os.fork() == 0:
        try:
            getattr(importlib.import_module("firm"), name)
        except BaseException as error:
            print(name, error, flush=True)
        os._exit(0)
    os.wait()
"""


def test_import_loads_torch_when_it_is_needed():
    subprocess.run([sys.executable, "-c", LAZY], check=True)


def test_every_public_name_is_there():
    assert {"Firm", "load", "prepare", "sample", "restore", "velocity_loss", "operators"} <= set(firm.__all__)
    for name in firm.__all__:
        found = getattr(firm, name)
        assert found is (sys.modules[f"firm.{name}"] if isinstance(found, ModuleType) else getattr(firm, name))
        assert name in dir(firm)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        firm.nothing  # noqa: B018


def test_each_name_of_the_surface_can_be_the_first_that_is_used():
    """What is loaded when first used must not lean on what another use has loaded."""
    done = subprocess.run([sys.executable, "-c", FIRST, *firm.__all__], capture_output=True, text=True, check=True)
    assert done.stdout == ""


def test_a_command_that_does_not_exist():
    from helpers import call, says

    result = call("nonsense")
    assert result.exit_code == 2
    assert says(result.output, "No such command 'nonsense'.")
    assert says(call("restor").output, "No such command 'restor'. Did you mean 'restore'?")
    assert says(call("reproduce", "celeb").output, "Did you mean 'celeba'")


def test_the_commands_are_known_before_their_files_are_loaded():
    """In the order of the help; a file is loaded for its own command only."""
    import typer

    from firm.cli import COMMANDS, app

    group = typer.main.get_command(app)
    assert list(group.commands) == list(COMMANDS) == group.list_commands(None)
    assert group.commands.loaded == {}
    assert group.get_command(None, "nothing") is None
    for name in COMMANDS:
        assert group.get_command(None, name).name == name
        assert group.commands[name] is group.get_command(None, name)
    assert set(group.commands["bench"].commands) == {"train", "sample"}
    assert "--simulate" in {option for p in group.commands["restore"].params for option in p.opts}
