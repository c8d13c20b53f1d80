"""A folder belongs to one command at a time, and to nobody once the command has ended, however it did."""

import json
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

from firm._util.files import HOLDER, NAME, LockedError, folder_lock, locked

HOLD = """
import sys, time
from firm._util.files import folder_lock
with folder_lock(sys.argv[1], "firm evaluate face-128"):
    print("held", flush=True)
    time.sleep(60)
"""


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def refused(folder, match="in use by"):
    """That this thread does not get the folder, and that it does not wait for it."""
    start = time.monotonic()
    with pytest.raises(LockedError, match=match), folder_lock(folder):
        pass
    return time.monotonic() - start < 5


def test_the_lock_says_who_holds_it_and_goes_with_the_command(tmp_path):
    out = tmp_path / "a" / "b"
    with folder_lock(out, "firm train x.yaml"):
        about = json.loads((out / HOLDER).read_text())
        assert (about["pid"], about["command"]) == (os.getpid(), "firm train x.yaml")
        assert {"host", "since"} <= about.keys()
        with folder_lock(tmp_path / "a" / ".." / "a" / "b"):  # the same thread may ask again
            pass
        assert names(out) == [NAME, HOLDER]
        (out / "result").touch()
    assert names(out) == ["result"]
    with pytest.raises(RuntimeError, match="on purpose"), folder_lock(out):
        raise RuntimeError("on purpose")
    assert names(out) == ["result"]
    with folder_lock(None), folder_lock(tmp_path / "new" / "folder"):  # None: not the main one of several processes
        pass
    assert names(tmp_path) == ["a"]  # a folder that was made for nothing is removed


def test_a_file_in_the_way(tmp_path):
    (tmp_path / "file").touch()
    for place in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(NotADirectoryError, match="is a file, not a folder"), folder_lock(place):
            pass


def test_a_living_process_keeps_others_out_and_a_killed_one_nobody(tmp_path):
    process = subprocess.Popen([sys.executable, "-c", HOLD, tmp_path], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "held\n"
    assert refused(tmp_path, rf"in use by firm evaluate face-128 \(process {process.pid} on .*choose another folder")
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert names(tmp_path) == [NAME, HOLDER]
    with folder_lock(tmp_path):
        assert json.loads((tmp_path / HOLDER).read_text())["pid"] == os.getpid()
    assert names(tmp_path) == []


def test_a_fork_does_not_hold_its_parents_folder(tmp_path):
    """As the workers of a data loader, which may live a little longer than a killed training."""
    out = tmp_path / "out"
    with folder_lock(out):
        worker = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,), daemon=True)
        worker.start()
    with folder_lock(out):
        pass
    worker.kill()


FOREIGN = b'{"command": "\\u001b[2J", "pid": 1, "host": "", "since": ""}'


@pytest.mark.parametrize("about", [None, b"", b"\0\xff", b"[]", b"{}", FOREIGN])
def test_another_thread_is_kept_out_also_by_a_holder_that_nobody_can_read(tmp_path, about):
    done = threading.Event()
    with folder_lock(tmp_path):
        (tmp_path / HOLDER).unlink() if about is None else (tmp_path / HOLDER).write_bytes(about)
        thread = threading.Thread(target=lambda: refused(tmp_path, "in use by (another command|\\?.2J)") and done.set())
        thread.start()
        thread.join()
        assert done.is_set()
        assert (tmp_path / NAME).is_file()  # still there


def listen(path):
    with socket.socket(socket.AF_UNIX) as ours:
        ours.bind(str(path))


def write(path):
    path.write_text("somebody's")


PLANTED = [lambda path: path.symlink_to(path.parent / "nowhere"), os.mkfifo, os.mkdir, listen, write]


@pytest.mark.parametrize("make", PLANTED)
def test_what_lies_at_the_locks_place_is_neither_followed_nor_waited_for(tmp_path, make):
    make(tmp_path / NAME)
    assert refused(tmp_path, "no plain, empty file.*delete it")
    assert names(tmp_path) == [NAME]
    (tmp_path / NAME).rename(tmp_path / HOLDER)
    with folder_lock(tmp_path):  # who is there may stay unknown
        assert (tmp_path / NAME).is_file()
    assert not (tmp_path / "nowhere").exists()


def test_a_lock_that_is_another_file_too_is_not_emptied(tmp_path):
    (tmp_path / "users").touch()
    os.link(tmp_path / "users", tmp_path / NAME)
    assert refused(tmp_path, "no plain, empty file")


def contend(folder, start, rounds):
    """Ask for the same folder as the others, over and over; an exclusive file tells if two were in at once."""
    for k in range(rounds):  # a process that fails breaks the barrier for the others after a while
        start.wait()
        try:
            with folder_lock(folder):
                os.close(os.open(folder / "inside", os.O_CREAT | os.O_EXCL))  # fails if another is in
                with open(folder / "winners", "a") as winners:
                    winners.write(f"{k}\n")
                (folder / "inside").unlink()
        except LockedError:
            pass


def test_processes_that_want_the_same_folder(tmp_path):
    context, rounds = multiprocessing.get_context("fork"), 40
    start = context.Barrier(4, timeout=10)
    workers = [context.Process(target=contend, args=(tmp_path, start, rounds), daemon=True) for _ in range(4)]
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

    assert work(tmp_path) == [NAME, HOLDER]
    assert work(tmp_path, main=False) == []
