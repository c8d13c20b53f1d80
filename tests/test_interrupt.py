"""Ctrl-C at any moment of a command: the word "stopped", exit code 130, and no traceback."""

import os
import signal
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from firm._util import interrupt
from firm.cli import app


def start(*arguments):
    command = [sys.executable, "-X", "importtime", "-m", "firm", *arguments]  # tells on stderr what it loads
    shown = {key: value for key, value in os.environ.items() if key != "TQDM_DISABLE"}  # the bar tells how far it is
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=shown, preexec_fn=_hear_sigint
    )


def _hear_sigint():
    """What a shell starts in the background ignores SIGINT, and so do its children: undo that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.parametrize("module", ["numpy", "torch._utils", "firm.operators.base"])
def test_while_the_library_is_loaded(module):
    process = start("reproduce", "toy", "--training", "1")
    for line in process.stderr:
        if line.split("|")[-1].strip() == module:
            break
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in errors
    assert "stopped\n" in errors


def test_in_the_middle_of_a_command(tmp_path):
    process = start("reproduce", "toy", "--out", str(tmp_path / "out"))
    for line in process.stderr:
        if "training:" in line:
            break
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in errors
    assert "stopped\n" in errors
    assert list(tmp_path.iterdir()) == []  # the lock is gone, and with it the folder made for it


def test_within_another_program(monkeypatch, tmp_path):
    monkeypatch.setattr("experiments.toy.study.study", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
    before = signal.getsignal(signal.SIGINT)
    result = CliRunner().invoke(app, ["reproduce", "toy", "--out", str(tmp_path)])
    assert result.exit_code == 130
    assert result.stderr == "stopped\n"
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize(
    ("words", "ours"),
    [
        (["python", "-m", "firm", "train"], True),
        (["python", "-u", "-X", "dev", "-m", "firm"], True),
        (["python", "/usr/bin/firm", "evaluate", "-m"], True),
        (["python", "-m", "pytest", "firm"], False),
        (["python", "my.py", "-m", "firm"], False),
        (["python", "-c", "import firm", "-m", "firm"], False),
        (["python"], False),
    ],
)
def test_only_our_own_command_line_is_touched(words, ours, monkeypatch):
    monkeypatch.setattr(sys, "orig_argv", words)
    assert interrupt.is_command_line() == ours
