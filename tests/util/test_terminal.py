"""At a terminal: Ctrl-C ends a command with "stopped" and exit code 130; bars, now and then in logs."""

import os
import pty
import signal
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from firm._util import terminal
from firm.cli import app

USUAL = {key: value for key, value in os.environ.items() if key != "TQDM_DISABLE"}


def start(*arguments):
    command = [sys.executable, "-X", "importtime", "-m", "firm", *arguments]  # tells on stderr what it loads
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=USUAL, preexec_fn=_hear_sigint
    )


def stopped(process):
    """Send Ctrl-C: the word and the code, and no traceback."""
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in errors
    assert "stopped\n" in errors


def _hear_sigint():
    """What a shell starts in the background ignores SIGINT, and so do its children: undo that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.parametrize("module", ["torch._utils", "firm.operators.base"])
def test_while_the_library_is_loaded(module):
    process = start("reproduce", "toy", "--training", "1")
    for line in process.stderr:
        if line.split("|")[-1].strip() == module:
            break
    stopped(process)


def test_in_the_middle_of_a_command(tmp_path):
    process = start("reproduce", "toy", "--out", str(tmp_path / "out"))
    for line in process.stderr:
        if "training:" in line:
            break
    stopped(process)
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
        (["python", "-u", "-X", "dev", "-m", "firm", "train"], True),
        (["python", "/usr/bin/firm", "evaluate", "-m"], True),
        (["python", "my.py", "-m", "firm"], False),
        (["python", "-c", "import firm", "-m", "firm"], False),
        (["python"], False),
    ],
)
def test_only_our_own_command_line_is_touched(words, ours, monkeypatch):
    monkeypatch.setattr(sys, "orig_argv", words)
    assert terminal._is_command_line() == ours


# Bars

ASK = "from firm._util.terminal import progress_bar as bar; print(bar([1]).disable, bar([1], shown=False).disable)"


@pytest.mark.parametrize(("environment", "disabled"), [({}, "False"), ({"TQDM_DISABLE": "1"}, "True")])
def test_a_bar_on_a_terminal_may_be_switched_off(environment, disabled):
    ours, theirs = pty.openpty()
    done = subprocess.run(
        [sys.executable, "-c", ASK], stdout=subprocess.PIPE, stderr=theirs, text=True, env=USUAL | environment,
        check=True,
    )  # fmt: skip
    os.close(ours)
    os.close(theirs)
    assert done.stdout.split() == [disabled, "True"]


WORK = """
import sys, time
import firm._util.terminal as progress
{before}
start = time.monotonic()
for _ in progress.progress_bar(range(20), delay=0):
    time.sleep(0.02)
print(time.monotonic() - start)
"""


@pytest.mark.parametrize(
    ("before", "environment", "least"),
    [
        ("", {}, 0),  # quick work: nothing in the log
        ("progress.EVERY = 0.2", {}, 1),  # a sign of life now and then
        ("progress.EVERY = 0.2", {"TQDM_DISABLE": "1"}, 0),
        ("sys.modules['ipykernel'] = sys", {}, 3),  # a notebook's stream is no terminal, but somebody looks
    ],
)
def test_in_a_log_a_bar_moves_now_and_then(before, environment, least):
    done = subprocess.run(
        [sys.executable, "-c", WORK.format(before=before)], capture_output=True, text=True, env=USUAL | environment,
        check=True,
    )  # fmt: skip
    shown, most = done.stderr.count("it/s"), float(done.stdout) / (0.1 if least == 3 else 0.2) + 2
    assert least <= shown <= (most if least else 0), done.stderr
