"""`import firm` is light: little time over torch, and none of the heavy packages."""

import subprocess
import sys

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
