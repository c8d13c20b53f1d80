"""``make mutate``: break the library on purpose, one line at a time, in a copy; a test must notice.

    python tests/reliability/mutate.py [WORD ...]       # those of `mutations.py` whose name holds one of the words

First the tests run on the copy as it is: one that fails by itself would notice nothing. Prints a line for every
mutation, and those that survived. Ends with 1 if any survived, or if its text is no longer there.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from mutations import MUTATIONS, Mutation

ROOT = Path(__file__).parents[2]
PATIENCE = 600  # seconds for the tests of one mutation


def main(words: list[str]) -> int:
    """Try the mutations; returns 1 if one survived."""
    chosen = [m for m in MUTATIONS if not words or any(word in m.name for word in words)]
    if not chosen:
        raise SystemExit(f"no mutation has {' or '.join(words)} in its name")
    found: dict[str, list[str]] = {"noticed": [], "SURVIVED": [], "no longer in the code": []}
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        _copy(copy)
        if _fails(copy, sorted({test for m in chosen for test in m.tests.split()}), workers=2):
            raise SystemExit("the tests fail without any mutation: mend them first")
        print(f"the tests pass without mutations ({time.monotonic() - start:.0f} s)", flush=True)
        for number, mutation in enumerate(chosen, start=1):
            begun = time.monotonic()
            result = _try(copy, mutation)
            found[result].append(mutation.name)
            seconds = time.monotonic() - begun
            print(f"{number:2d}/{len(chosen)} {result:9s} {seconds:3.0f} s  {mutation.name}", flush=True)
    print(f"{len(found.pop('noticed'))} of {len(chosen)} noticed in {time.monotonic() - start:.0f} s")
    for what, names in found.items():
        if names:
            print(f"{what}: {'; '.join(names)}")
    return int(any(found.values()))


def _copy(folder: Path) -> None:
    """What the tests need of the checkout."""
    for name in ("src", "tests", "configs", "docs", "examples", "experiments", "weights"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "Makefile", "constraints.txt"):
        shutil.copy(ROOT / name, folder / name)


def _try(copy: Path, mutation: Mutation) -> str:
    """Apply the mutation, see whether a test notices, and put the file back."""
    path = copy / mutation.file if mutation.file.startswith("experiments/") else copy / "src" / "firm" / mutation.file
    text = path.read_text()
    if text.count(mutation.old) != 1:
        return "no longer in the code"
    path.write_text(text.replace(mutation.old, mutation.new))
    try:
        return "noticed" if _fails(copy, mutation.tests.split(), workers=0) else "SURVIVED"
    finally:
        path.write_text(text)


def _fails(copy: Path, tests: Sequence[str], workers: int) -> bool:
    """Whether one of the tests fails on the copy."""
    paths = [str(copy / "tests" / name) for name in tests]
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-n", str(workers), "-p", "no:cacheprovider", *paths]
    environment = {**os.environ, "PYTHONPATH": str(copy / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    environment["OMP_NUM_THREADS"] = "1"
    try:
        done = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        return True  # a test that waits for ever has noticed, too
    failed = "FAILED" in done.stdout or "ERROR" in done.stdout  # stopped at the first one, pytest may end with 2
    if "ERROR: " in done.stdout + done.stderr or (done.returncode and not failed):  # a path or name that is not there
        raise SystemExit(f"the tests could not be run:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
