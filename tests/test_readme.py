"""The README's Python runs as written."""

import re
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"


def test_the_example_runs(capsys):
    (program,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert len([line for line in program.splitlines() if line.strip()]) <= 10
    exec(program, {})
    error, spread, calls = map(float, re.findall(r"[0-9.]+[0-9]", capsys.readouterr().out))
    assert 0 < error < 0.05
    assert 0 < spread < 0.05
    assert calls == 20


@pytest.mark.parametrize("page", ["operators", "evaluation", "baselines"])
def test_the_python_of_the_docs_runs(page):
    programs = re.findall(r"```python\n(.*?)```", (README.parent / "docs" / f"{page}.md").read_text(), re.DOTALL)
    assert programs
    exec("\n".join(programs), {})
