"""Full disks: a sentence, or nothing, and never half a file."""

import contextlib
import resource

import pytest
import torch
from helpers import same, tells, weights

import firm
from firm.training.config import dump_config
from firm.training.log import Log, read_log
from firm.training.validation import save_sheet


@contextlib.contextmanager
def full_disk(size):
    """No file grows beyond `size` bytes: writing fails in the middle, as on a full disk."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_full_disk_ends_in_a_sentence_and_the_run_goes_on_when_there_is_room(short, tmp_path, fit):
    fit(short)
    run = tmp_path / "run"
    right, older, newest = weights(run), *sorted((run / "checkpoints").iterdir())
    newest.unlink()  # as if stopped after step 2
    (tmp_path / "c.yaml").write_text(dump_config(short))
    before = older.read_bytes()
    with full_disk(len(before) // 2):
        tells("File too large. What was saved before is whole: once", "train", tmp_path / "c.yaml", code=1)
    assert older.read_bytes() == before
    assert [path.name for path in (run / "checkpoints").iterdir()] == [older.name]
    assert not list(run.rglob(".*"))
    assert firm.load(run / "model.safetensors").card["steps"] == 2
    assert fit(short)["steps_now"] == 2
    assert same(weights(run), right)
    assert [row["step"] for row in read_log(run)] == [1, 2, 3, 4]


def test_the_log_and_pictures_are_whole_or_not_there(tmp_path):
    log = Log(tmp_path, 0)
    log.write({"step": 1, "loss": 0.5})
    path = tmp_path / "metrics.jsonl"
    before = path.read_bytes()
    with full_disk(len(before) + 10), pytest.raises(OSError, match="too large"):
        log.write({"step": 2, "loss": 0.5})
    assert path.read_bytes() == before
    log.write({"step": 3})
    log.close()
    assert [row["step"] for row in read_log(tmp_path)] == [1, 3]
    with full_disk(100), pytest.raises(OSError, match="too large"):
        save_sheet([[("truth", torch.rand(3, 16, 16))]], tmp_path / "sheet.png")
    assert [p.name for p in tmp_path.iterdir() if "png" in p.name] == []


def test_a_log_of_something_else_has_no_rows(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'[1]\n3\n"a"\n{"loss": 1}\n{"step": "x"}\n\xff\xfe\n{"step": 4}\n' + b"[" * 100_000)
    assert read_log(tmp_path) == [{"step": 4}]
