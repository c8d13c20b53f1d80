"""The README's Python runs as written."""

import re
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"


def test_the_example_runs(capsys):
    (program,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert len([line for line in program.splitlines() if line.strip()]) <= 10
    exec(program, {})
    one, ten = capsys.readouterr().out.splitlines()
    assert "1 steps" in one
    assert int(re.search(r"(\d+) of 2000", one)[1]) <= 2
    assert 900 < int(re.search(r"(\d+) of 2000", ten)[1]) < 1100


@pytest.mark.parametrize("page", ["operators", "evaluation"])
def test_the_python_of_the_docs_runs(page):
    (program,) = re.findall(r"```python\n(.*?)```", (README.parent / "docs" / f"{page}.md").read_text(), re.DOTALL)
    exec(program, {})
