"""Bars: on a terminal and in notebooks, unless TQDM_DISABLE=1 says no, and never in pipes and logs."""

import os
import pty
import subprocess
import sys

import pytest

ASK = "from firm._util.progress import progress_bar as bar; print(bar([1]).disable, bar([1], shown=False).disable)"


@pytest.mark.parametrize(
    ("terminal", "environment", "disabled"),
    [(True, {}, "False"), (True, {"TQDM_DISABLE": "1"}, "True"), (False, {}, "True")],
)
def test_a_bar_is_for_a_terminal_and_may_be_switched_off(terminal, environment, disabled):
    ours, theirs = pty.openpty()
    usual = {key: value for key, value in os.environ.items() if key != "TQDM_DISABLE"}
    done = subprocess.run(
        [sys.executable, "-c", ASK], stdout=subprocess.PIPE, stderr=theirs if terminal else subprocess.PIPE, text=True,
        env=usual | environment, check=True,
    )  # fmt: skip
    os.close(ours)
    os.close(theirs)
    assert done.stdout.split() == [disabled, "True"]
    assert terminal or done.stderr == ""


@pytest.mark.parametrize(("modules", "disabled"), [("", "True"), ("sys.modules['ipykernel'] = sys;", "False")])
def test_a_notebook_has_bars_although_its_stream_is_no_terminal(modules, disabled):
    usual = {key: value for key, value in os.environ.items() if key != "TQDM_DISABLE"}
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; {modules} {ASK}"], capture_output=True, text=True, env=usual, check=True
    )
    assert done.stdout.split() == [disabled, "True"]
