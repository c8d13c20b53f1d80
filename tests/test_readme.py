"""The README's Python runs as written."""

import re
from pathlib import Path

import pytest
import torch

import firm

README = Path(__file__).parents[1] / "README.md"


def test_the_example_runs(capsys):
    (program,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert len([line for line in program.splitlines() if line.strip()]) <= 10
    exec(program, {})
    error, spread, calls = map(float, re.findall(r"[0-9.]+[0-9]", capsys.readouterr().out))
    assert 0 < error < 0.05
    assert 0 < spread < 0.05
    assert calls == 20


def test_the_operators_of_ones_own_are_made_as_shown():
    start = (README.parent / "docs" / "start.md").read_text()
    calls = re.findall(r"`(firm\.operators\.from_functions\(.*?\))`", start)
    x, y = torch.ones(1, 3, 128, 128), torch.zeros(1, 3, 128, 128)
    for call in calls:
        op = eval(call, {"firm": firm, "A": lambda x: 2 * x, "A_adjoint": lambda y: 2 * y})
        torch.testing.assert_close(firm.operators.data_consistency(op, x, y, 1.0), x / 5)
    assert ["A_adjoint" in call for call in calls] == [True, False]


@pytest.mark.parametrize("page", ["operators", "evaluation", "baselines"])
def test_the_python_of_the_docs_runs(page):
    programs = re.findall(r"```python\n(.*?)```", (README.parent / "docs" / f"{page}.md").read_text(), re.DOTALL)
    assert programs
    exec("\n".join(programs), {})
