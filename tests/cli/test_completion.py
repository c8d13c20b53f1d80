"""Completion of the shell, and the help's panels."""

import os
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from firm.cli import app
from firm.cli.options import model_names

PROGRAM = "import sys; from firm.cli import app; sys.argv = ['firm', *sys.argv[1:]]; app(prog_name='firm')"


def firm_command(*words, **environment):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *words], env={**os.environ, **environment}, capture_output=True, text=True
    )
    assert done.returncode == 0
    return done.stdout


def asked(line):
    """What the shell sets when Tab is pressed at the end of a line."""
    return {"_FIRM_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}


def completed(line):
    return CliRunner().invoke(app, [], prog_name="firm", env=asked(line)).output.split()


def test_the_shell_completes_commands_options_and_values():
    assert firm_command(**asked("firm rest")).split() == ["restore"]
    assert completed("firm restore --keep") == ["--keep-known"]
    assert completed("firm restore --task de") == ["denoising", "deblurring", "demosaicing"]
    assert completed("firm restore --simulate box") == ["box-inpainting"]
    assert completed("firm restore --model fa") == completed("firm info face") == ["face-128"]
    assert completed("firm restore --format png") == ["png", "png16"]


def test_the_script_for_the_shell_is_there():
    output = firm_command("--show-completion", "bash", _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1")
    assert "_FIRM_COMPLETE=complete_bash" in output


def test_model_files_are_completed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "model.safetensors").touch()
    (tmp_path / "runs" / "log.txt").touch()
    assert model_names("ru") == ["runs/"]
    assert model_names("runs/") == ["runs/model.safetensors"]
    assert model_names("none/") == []


@pytest.mark.parametrize("option", ["--missing", "--box", "--lines", "--strokes", "--width", "--set", "--simulate"])
def test_options_of_a_simulation_have_a_panel_of_their_own(option):
    output = CliRunner().invoke(app, ["restore", "--help"], env={"COLUMNS": "200"}).output
    general, _, rest = output.partition("What is wrong with the pictures")
    picture, _, simulation = rest.partition("Simulation: degrade clean pictures first")
    assert f"│ {option} " in simulation
    assert f"│ {option} " not in general + picture
    for other in ("--task", "--sigma", "--blur", "--mask", "--scale"):
        assert f"│ {other} " in picture
