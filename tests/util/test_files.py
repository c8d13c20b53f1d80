"""Files are there whole or not at all, and nothing that lies in the folder is followed, overwritten or deleted."""

import os
import re

import pytest

from firm._util import files
from firm._util.files import check_file, remove_leftovers, write_atomically


def test_a_file_is_written_with_its_folder_and_the_usual_rights(tmp_path):
    path = tmp_path / "a" / "b.json"
    write_atomically(path, "one")
    write_atomically(path, b"two")
    assert path.read_bytes() == b"two"
    (tmp_path / "usual").touch()
    assert path.stat().st_mode == (tmp_path / "usual").stat().st_mode
    assert [p.name for p in path.parent.iterdir()] == ["b.json"]


def test_a_write_that_fails_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "a.txt"
    write_atomically(path, "old")

    def full(_):
        raise OSError("no space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="no space"):
        write_atomically(path, "new")
    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [("a.txt", "old")]


def test_a_reader_never_sees_half_a_file(tmp_path):
    """Who has the old file open reads it to its end; who opens it anew has the new one."""
    path = tmp_path / "a.txt"
    write_atomically(path, "old")
    with open(path) as reader:
        write_atomically(path, "new, and longer")
        assert reader.read() == "old"
    path.unlink()
    path.symlink_to(tmp_path / "users")
    write_atomically(path, "newer")  # takes the place of the link
    assert path.read_text() == "newer"
    assert not (tmp_path / "users").exists()


def test_a_planted_link_is_not_followed(tmp_path, monkeypatch):
    """Names are random; even one that is guessed is not written through."""
    monkeypatch.setattr(files.secrets, "token_hex", lambda n: "0" * 2 * n)
    (tmp_path / "users").write_text("mine")
    (tmp_path / ".firm-0000000000000000.tmp").symlink_to(tmp_path / "users")
    with pytest.raises(FileExistsError):
        write_atomically(tmp_path / "a.txt", "new")
    assert (tmp_path / "users").read_text() == "mine"


def test_only_our_own_leftovers_are_removed(tmp_path, monkeypatch):
    (tmp_path / ".firm-0123456789abcdef.tmp").mkdir()  # nor is a folder ours
    others = [".report.2024.tmp", ".a.png.7.tmp", ".firm-.tmp", ".firm-notes.tmp", "x.tmp", ".firm-lock"]
    for name in others:
        (tmp_path / name).touch()
    names = []
    monkeypatch.setattr(os, "replace", lambda a, b: names.append(a.name))
    monkeypatch.setattr(type(tmp_path), "unlink", lambda *_, **__: None)
    write_atomically(tmp_path / "a.txt", "x")  # a process that is killed here
    monkeypatch.undo()
    assert re.fullmatch(r"\.firm-[0-9a-f]{16}\.tmp", names[0])
    assert (tmp_path / names[0]).is_file()
    remove_leftovers([tmp_path])
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted([*others, ".firm-0123456789abcdef.tmp"])


def test_where_a_file_cannot_be(tmp_path):
    assert check_file(tmp_path / "new" / "a.json").parent.is_dir()
    with pytest.raises(IsADirectoryError, match="name a file in it"):
        check_file(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError, match="is a file, not a folder"):
        check_file(tmp_path / "file" / "a.json")
