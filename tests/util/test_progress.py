"""Bars: on a terminal and in notebooks, now and then in pipes and logs, unless TQDM_DISABLE=1 says no."""

import os
import pty
import subprocess
import sys

import pytest

ASK = "from firm._util.terminal import progress_bar as bar; print(bar([1]).disable, bar([1], shown=False).disable)"
USUAL = {key: value for key, value in os.environ.items() if key != "TQDM_DISABLE"}


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
