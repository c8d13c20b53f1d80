"""A folder belongs to one command at a time; what dead processes leave is taken over, by one of those who want it."""

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from firm._util import locks
from firm._util.locks import NAME, LockedError, folder_lock, locked


def leave(folder, **changes):
    """A lock file as another process would have left it."""
    holder = replace(locks._myself("firm train"), **changes)
    (folder / NAME).write_text(json.dumps(asdict(holder)))
    return holder


def dead_process():
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_the_lock_says_who_holds_it_and_goes_with_the_command(tmp_path):
    out = tmp_path / "a" / "b"
    with folder_lock(out, "firm train x.yaml"):
        about = json.loads((out / NAME).read_text())
        assert about["pid"] == os.getpid()
        assert about["command"] == "firm train x.yaml"
        assert {"host", "started", "since"} <= about.keys()
        with folder_lock(tmp_path / "a" / ".." / "a" / "b"):  # the same thread may ask again
            pass
        assert names(out) == [NAME]
        (out / "result").touch()
    assert names(out) == ["result"]
    with pytest.raises(RuntimeError, match="on purpose"), folder_lock(out):
        raise RuntimeError("on purpose")
    assert names(out) == ["result"]
    with folder_lock(None):  # one of the processes that are not the main one
        pass


def test_a_folder_that_was_made_for_nothing_is_removed(tmp_path):
    with folder_lock(tmp_path / "new"):
        pass
    assert names(tmp_path) == []


def test_a_file_in_the_way(tmp_path):
    (tmp_path / "file").touch()
    for place in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(NotADirectoryError, match="is a file, not a folder"), folder_lock(place):
            pass


def test_a_living_process_keeps_others_out(tmp_path):
    program = f"""
import sys, time
from firm._util.locks import folder_lock
with folder_lock({str(tmp_path)!r}, "firm evaluate face-128"):
    print("held", flush=True)
    time.sleep(60)
"""
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "held\n"
    with (
        pytest.raises(LockedError, match=rf"in use by firm evaluate face-128 \(process {process.pid} on .*choose"),
        folder_lock(tmp_path),
    ):
        pass
    process.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 10
    while locks._alive(process.pid, json.loads((tmp_path / NAME).read_text())["started"]):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    with folder_lock(tmp_path):  # it has not even been waited for
        assert json.loads((tmp_path / NAME).read_text())["pid"] == os.getpid()
    process.communicate()
    assert names(tmp_path) == []


def test_another_thread_is_kept_out(tmp_path):
    said = []

    def other():
        try:
            with folder_lock(tmp_path):
                said.append("in")
        except LockedError as error:
            said.append(str(error))

    with folder_lock(tmp_path):
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert "another thread" in said[0]


@pytest.mark.skipif(not Path("/proc/self/stat").is_file(), reason="the start of a process is known on Linux only")
def test_a_number_that_another_process_has_by_now(tmp_path):
    leave(tmp_path, started="1")  # our own number, but of a process that started at another time
    with folder_lock(tmp_path):
        pass
    leave(tmp_path)
    with pytest.raises(LockedError), folder_lock(tmp_path):
        pass


def test_without_proc_the_number_decides(tmp_path, monkeypatch):
    monkeypatch.setattr(locks, "_started", lambda pid: "")
    leave(tmp_path, started="")
    with pytest.raises(LockedError), folder_lock(tmp_path):
        pass
    leave(tmp_path, started="", pid=dead_process())
    with folder_lock(tmp_path):
        pass


@pytest.mark.parametrize("damaged", [None, b"\0\xff", b"[]", b"7", b'{"pid": "x"}'])
def test_another_machines_lock_is_taken_over_after_ten_minutes_without_a_sign_of_life(tmp_path, damaged):
    leave(tmp_path, host="elsewhere", machine="elsewhere", pid=dead_process())
    path = tmp_path / NAME
    if damaged is not None:
        path.write_bytes(damaged)
    for age, free in ((0, False), (locks.STALE - 20, False), (locks.STALE + 20, True)):
        os.utime(path, (time.time() - age,) * 2)
        if free:
            with folder_lock(tmp_path):
                pass
        else:
            with pytest.raises(LockedError, match=f"delete .*{NAME}"), folder_lock(tmp_path):
                pass
    assert names(tmp_path) == []


def test_the_holder_shows_that_it_lives(tmp_path, monkeypatch):
    monkeypatch.setattr(locks, "HEARTBEAT", 0.01)
    with folder_lock(tmp_path):
        os.utime(tmp_path / NAME, (0, 0))
        deadline = time.monotonic() + 10
        while (tmp_path / NAME).stat().st_mtime == 0 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert time.time() - (tmp_path / NAME).stat().st_mtime < 60


def test_a_holder_that_was_asleep_leaves_the_lock_of_its_heir(tmp_path):
    with folder_lock(tmp_path):
        other = leave(tmp_path, token=str(locks.uuid.uuid4()))
    assert json.loads((tmp_path / NAME).read_text())["token"] == other.token


def test_an_heir_that_died_before_it_took_over(tmp_path):
    first = leave(tmp_path, pid=dead_process())
    second = replace(first, token=str(locks.uuid.uuid4()))
    (tmp_path / f"{NAME}-{first.token}").write_text(json.dumps(asdict(second)))
    with folder_lock(tmp_path):
        assert names(tmp_path) == [NAME]
    assert names(tmp_path) == []


def test_an_heir_that_is_about_to_take_over(tmp_path):
    first = leave(tmp_path, pid=dead_process())
    mine = locks._myself("firm restore")
    (tmp_path / f"{NAME}-{first.token}").write_text(json.dumps(asdict(mine)))
    with pytest.raises(LockedError, match="firm restore"), folder_lock(tmp_path):
        pass
    # and one that comes too late: the lock is another's by now
    (tmp_path / f"{NAME}-{first.token}").unlink()
    now = leave(tmp_path)
    assert not locks._inherit(tmp_path / NAME, first, mine)
    assert json.loads((tmp_path / NAME).read_text())["token"] == now.token
    assert names(tmp_path) == [NAME]


def contend(folder, start, rounds, pid):
    """Find the same stale lock as the others, over and over; an exclusive file tells if two were in at once."""
    for k in range(rounds):  # a process that fails breaks the barrier for the others after a while
        if start.wait() == 0:
            leave(folder, pid=pid, token=str(locks.uuid.uuid4()))
        start.wait()
        try:
            with folder_lock(folder):
                file = os.open(folder / "inside", os.O_CREAT | os.O_EXCL)  # fails if another is in
                os.close(file)
                with open(folder / "winners", "a") as winners:
                    winners.write(f"{k}\n")
                time.sleep(0.002)
                (folder / "inside").unlink()
        except LockedError:
            pass


def test_processes_that_find_the_same_stale_lock(tmp_path):
    context, rounds = multiprocessing.get_context("fork"), 60
    start, pid = context.Barrier(4, timeout=5), dead_process()
    workers = [context.Process(target=contend, args=(tmp_path, start, rounds, pid), daemon=True) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert [worker.exitcode for worker in workers] == [0] * 4
    assert names(tmp_path) == ["winners"]
    won = [int(line) for line in (tmp_path / "winners").read_text().splitlines()]
    assert set(won) == set(range(rounds))  # somebody always gets it


def test_a_function_that_locks(tmp_path):
    @locked(lambda out, main=True: out if main else None)
    def work(out, main=True):
        return names(out)

    assert work(tmp_path) == [NAME]
    assert work(tmp_path, main=False) == []
