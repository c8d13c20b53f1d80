"""The commands as a whole: what there is, what it says, and what is loaded for it."""

import subprocess
import sys
from typing import get_args

import pytest
import typer
from helpers import call, says

import firm
from firm.acceleration import _fast
from firm.cli import COMMANDS, app, options


def test_the_command_line_tells_its_version():
    result = subprocess.run([sys.executable, "-m", "firm", "--version"], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == f"firm {firm.__version__}"


def test_the_precisions_are_the_librarys():
    """They are written twice so that --help is quick; they must not drift apart."""
    assert get_args(options.Precision) == get_args(_fast.Precision)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nonsense"], "No such command 'nonsense'."),
        (["restor"], "No such command 'restor'. Did you mean 'restore'?"),
        (["reproduce", "celeb"], "Did you mean 'celeba'"),
    ],
)
def test_a_command_that_does_not_exist(words, message):
    result = call(*words)
    assert result.exit_code == 2
    assert says(result.output, message)


def test_the_commands_are_known_before_their_files_are_loaded():
    """In the order of the help; a file is loaded for its own command only."""
    group = typer.main.get_command(app)
    assert list(group.commands) == list(COMMANDS) == group.list_commands(None)
    assert not any(group.commands.values())
    assert group.get_command(None, "nothing") is None
    for name in COMMANDS:
        assert group.get_command(None, name).name == name
        assert group.commands[name] is group.get_command(None, name)
    assert set(group.commands["bench"].commands) == {"train", "sample"}
    assert "--simulate" in {option for p in group.commands["restore"].params for option in p.opts}
