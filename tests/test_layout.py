"""The package's shape: a light import, names that do not fight, and nothing that imports upwards (docs: the design)."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import firm

ROOT = Path(firm.__file__).parent
# From the ground up; what stands in one line may import each other. `_util` serves all.
ORDER = [
    {"_util"},
    {"operators", "noise"},
    {"blind"},
    {"networks"},
    {"_channels", "_posterior_mean", "_prepare", "_sampling", "_flow", "_model", "_model_file", "_hub", "_restore"},
    {"acceleration"},
    {"tasks"},
    {"data"},
    {"metrics"},
    {"training", "restoration", "evaluation", "baselines"},
    {"instruments"},
    {"bench"},
    {"scale"},
    {"cli", "demo"},
    {"__init__", "__main__"},
]
LEVEL = {name: level for level, names in enumerate(ORDER) for name in names}
WALK = """
import importlib, pkgutil, types, firm

seen, shadowed = [], []
packages = [firm] + [importlib.import_module(m.name) for m in pkgutil.walk_packages(firm.__path__, "firm.") if m.ispkg]
for package in packages:
    for module in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
        if module.name == "firm.__main__" or module.name.endswith("_kernel"):
            continue  # runs; needs a GPU's compiler
        try:
            importlib.import_module(module.name)
        except ModuleNotFoundError as error:
            if error.name not in ("gradio", "starlette", "fastapi", "uvicorn"):  # an extra: the page may be without it
                raise
            continue
        seen.append(module.name)
for name in seen:
    package, _, last = name.rpartition(".")
    if not isinstance(getattr(importlib.import_module(package), last), types.ModuleType):
        shadowed.append(name)
print((seen, shadowed))
"""
PROGRAM = """
import sys, time
start = time.perf_counter()
import firm
print(time.perf_counter() - start)
assert {"Firm", "load", "operators"} <= set(dir(firm))
assert "torch" not in sys.modules, "import firm or dir(firm) loads torch"
firm.Firm
import torch, firm.metrics, firm.operators.interop, firm.scale  # which work beside any torchvision, for they do without
firm.metrics.ssim(torch.zeros(1, 3, 32, 32), torch.zeros(1, 3, 32, 32))
heavy = ("torchvision", "matplotlib", "deepinv", "gradio", "torchmetrics", "typer", "rich")
heavy += ("dask", "zarr", "ray", "fsspec")
print(" ".join(m for m in heavy if m in sys.modules))
"""
FIRST = """
import importlib, os, sys, torch
for name in sys.argv[1:]:
    if os.fork() == 0:
        try:
            getattr(importlib.import_module("firm"), name)
        except BaseException as error:
            print(name, error, flush=True)
        os._exit(0)
    os.wait()
"""


def imported(tree):
    """What a file imports from firm, as (dotted module, name)."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names if alias.name.split(".")[0] == "firm")
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            if node.module and node.module.split(".")[0] == "firm":
                yield from ((node.module, alias.name) for alias in node.names)


def test_no_name_is_a_module_and_something_else():
    """A function of a module's name hides the module, or the module the function: whichever was loaded last."""
    done = subprocess.run([sys.executable, "-c", WALK], capture_output=True, text=True, check=True)
    seen, shadowed = ast.literal_eval(done.stdout)
    assert {"firm.metrics._fidelity", "firm.cli.evaluate", "firm.tasks.fourier", "firm._restore"} <= set(seen)
    assert shadowed == []


def test_nothing_imports_upwards():
    wrong, seen = [], 0
    for path in ROOT.rglob("*.py"):
        own = path.relative_to(ROOT).parts[0].removesuffix(".py")
        assert own in LEVEL, f"{own} has no place in the order"
        for module, name in imported(ast.parse(path.read_text())):
            other = module.split(".")[1] if "." in module else name
            if other == "__version__":
                continue
            if other not in LEVEL:  # a name of the public surface, `from firm import load`
                other = "__init__"
            seen += 1
            if LEVEL[other] > LEVEL[own] and not (other == "__init__" and own in ("cli", "demo")):
                wrong.append(f"{path.relative_to(ROOT)} imports {module}.{name}")
    assert seen > 300
    assert not wrong


def test_the_studies_stand_on_the_package_and_not_the_other_way_round():
    """Only ``firm reproduce`` knows where they are, and loads them by their path."""
    for path in ROOT.rglob("*.py"):
        text = path.read_text()
        assert not re.search(r"^\s*(from|import) experiments\b", text, re.MULTILINE), path
        assert path == ROOT / "cli" / "reproduce.py" or '"experiments' not in text, path
    assert 'packages = ["src/firm"]' in (ROOT.parents[1] / "pyproject.toml").read_text()  # of the wheel


def test_training_stands_on_evaluation_and_not_the_other_way_round():
    for lower in ("evaluation", "restoration"):
        for path in (ROOT / lower).rglob("*.py"):
            found = {m.split(".")[1] for m, _ in imported(ast.parse(path.read_text())) if "." in m}
            assert not found & {"training", "bench", "cli"}


def test_import_is_light():
    for _ in range(3):  # another may have had the machine
        done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
        seconds, heavy, _ = done.stdout.split("\n")
        assert heavy == ""
        if float(seconds) < 0.15:
            return
    pytest.fail(f"import firm took {seconds} s")


def test_every_public_name_is_there():
    assert {"Firm", "load", "prepare", "sample", "restore", "velocity_loss", "operators"} <= set(firm.__all__)
    assert set(firm.__all__) <= set(dir(firm))
    assert all(hasattr(firm, name) for name in firm.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        firm.nothing  # noqa: B018


def test_each_name_of_the_surface_can_be_the_first_that_is_used():
    """What is loaded when first used must not lean on what another use has loaded; one name of every module."""
    names = {getattr(getattr(firm, name), "__module__", name): name for name in firm.__all__}.values()
    done = subprocess.run([sys.executable, "-c", FIRST, *names], capture_output=True, text=True, check=True)
    assert done.stdout == ""
