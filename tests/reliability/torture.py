"""``make torture``: attack the library on purpose, and count. Under 30 minutes on 2 cores.

    python tests/reliability/torture.py [NAME ...] [--out torture.json]       # one file beside this one for each kind

Every attack is drawn from a seed, so that a failure can be repeated. Prints a table and what went wrong; ends with 1 if
anything did.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import changes
import damage
import full_disk
import hostile
import kills
import page_traffic
import planted
import sharing
import strange_files
import wrong_operators
from commands import Result

ATTACKS: dict[str, Callable[[Path, random.Random], Result]] = {
    "strange-files": strange_files.strange_files,  # the first three run commands in forks of this process, which has
    "planted": planted.planted,  # not computed yet
    "changes": changes.changes,
    "page": page_traffic.page_traffic,
    "kills": kills.training,
    "restore-kills": kills.restoring,
    "evaluate-kills": kills.evaluating,
    "full-disk": full_disk.full_disk,
    "two-commands": sharing.two_commands,
    "files": damage.damaged_files,
    "pictures": hostile.fuzzed_pictures,
    "arguments": hostile.arguments,
    "operators": wrong_operators.operators,
    "sharing": sharing.threads,
}


def main(words: list[str]) -> int:
    """Run the attacks that are named, or all."""
    out = Path(words[words.index("--out") + 1]) if "--out" in words else None
    names = [word for word in words if word in ATTACKS] or list(ATTACKS)
    results, failed = {}, False
    for name in names:
        start = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            held, of, wrong = ATTACKS[name](Path(folder), random.Random(0))
        results[name] = {"held": held, "of": of, "seconds": round(time.monotonic() - start), "wrong": wrong}
        failed |= bool(wrong)
        print(f"{name:14s} {held} of {of} held, {results[name]['seconds']} s", flush=True)
        for line in wrong[:10]:
            print(f"    {line[:400]}")
        if out is not None:
            out.parent.mkdir(parents=True, exist_ok=True)
            out.write_text(json.dumps(results, indent=1))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
