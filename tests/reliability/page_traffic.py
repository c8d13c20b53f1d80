"""Hostile visitors of the page: pictures made to harm, foreign names and sites, floods, hang-ups, guessed passwords."""

from __future__ import annotations

import json
import random
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from commands import Result, pictures
from strange_files import images, saved, tiffs

sys.path.insert(0, str(Path(__file__).parents[1]))
PATIENT = 60.0  # seconds that any request may take, one that is let down included
SITES = ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "2130706433", "0.0.0.0", "[::ffff:1.2.3.4]"]
LONG = {"steps": 50, "samples": 16}  # of a job that would take minutes


def page_traffic(folder: Path, rng: random.Random) -> Result:
    """400 requests to two pages on this machine, one of them with a password; both must answer others all the time."""
    if find_spec("gradio") is None:
        print("    the page needs gradio, which is not installed here", flush=True)
        return 0, 0, []
    from demo.served import demo

    for name in ("open", "closed"):
        (folder / name).mkdir()
    with demo(folder / "open") as page, demo(folder / "closed", "--auth", "me:right") as closed:
        visit = Visit(page.url)
        asked: list[tuple[str, Callable[[], str]]] = []
        for name, (data, right) in {**tiffs(), **images()}.items():
            asked += [(f"picture {name}", lambda name=name, data=data, right=right: visit.picture(name, data, right))]
            if len(asked) % 3 == 0:
                asked += [(f"layer {name}", lambda name=name, data=data: visit.layer(name, data))]
        for i in range(60):
            asked += [(f"host {i}", lambda i=i: visit.foreign({"host": SITES[i % 6]}, i))]
            asked += [(f"origin {i}", lambda i=i: visit.foreign({"origin": f"http://{SITES[i % 6]}"}, i))]
        asked += [(f"upload {i}", lambda i=i: visit.flood(i)) for i in range(40)]
        asked += [(f"bytes {i}", lambda noise=rng.randbytes(3000), i=i: visit.bytes(noise, i)) for i in range(40)]
        asked += [(f"password {i}", lambda i=i: guess(closed.url, f"{i}")) for i in range(40)]
        gone = [(f"hang-up {i}", lambda i=i: visit.hang_up(i)) for i in range(400 - len(asked))]
        rng.shuffle(asked)
        with watched(page.url, closed.url) as wrong, ThreadPoolExecutor(12) as pool:
            for part in (gone, asked):
                told = pool.map(lambda ask: f"{ask[0]}: {said}" if (said := _tried(ask[1])) else "", part)
                wrong += [line for line in told if line]
                start = time.monotonic()
                said = visit.picture("good.png", saved("PNG", 32), 0.0)
                if said or time.monotonic() - start > 30:
                    wrong.append(f"a visitor after {part[0][0]} and others waited {time.monotonic() - start:.0f} s: {said}")
        for name, each in (("open", page), ("closed", closed)):
            if each.megabytes("VmHWM") > 1500:
                wrong.append(f"the {name} page took {each.megabytes('VmHWM'):.0f} MB")
        kept = sum(path.stat().st_size for path in (folder / "open").rglob("*") if path.is_file()) / 1e6
        wrong += [f"the page keeps {kept:.0f} MB of visitors' files"] if kept > 1100 else []
    return 400 - len(wrong), 400, wrong


def _tried(ask: Callable[[], str]) -> str:
    try:
        return ask()
    except Exception as error:
        return f"{type(error).__name__}: {error}"


@contextmanager
def watched(*urls: str) -> Iterator[list[str]]:
    """Ask the pages for themselves all the time; the list has the answers that took too long."""
    import httpx

    late, over = list[str](), threading.Event()

    def watch(url: str) -> None:
        while not over.wait(0.3):
            start = time.monotonic()
            said = _tried(lambda: "" if httpx.get(url, timeout=10).status_code < 500 else "an error")
            if said or time.monotonic() - start > 5:
                late.append(f"the page answered after {time.monotonic() - start:.1f} s: {said}")

    watchers = [threading.Thread(target=watch, args=(url,)) for url in urls]
    for watcher in watchers:
        watcher.start()
    try:
        yield late
    finally:
        over.set()
        for watcher in watchers:
            watcher.join()


class Visit:
    """What visitors send to a page; each method says what was wrong with the answer, nothing if it was right."""

    def __init__(self, url: str) -> None:
        import httpx

        self.url, self.api, self.http = url, f"{url}gradio_api/", httpx
        config = httpx.get(f"{url}config").json()
        kinds = {part["id"]: (part["type"], part["props"].get("value")) for part in config["components"]}
        button = max((d for d in config["dependencies"] if d["api_name"] != "restore"), key=lambda d: len(d["inputs"]))
        self.fn, self.inputs = button["id"], [kinds[i] for i in button["inputs"]]

    def upload(self, name: str, data: bytes) -> Any:
        """Bring a file."""
        return self.http.post(f"{self.api}upload", files={"files": (name, data)}, timeout=PATIENT)

    def file(self, name: str, data: bytes) -> dict[str, Any]:
        """Bring a file, and name it as the page's events do."""
        path = self.upload(name, data).json()[0]
        return {"path": path, "orig_name": name, "meta": {"_type": "gradio.FileData"}}

    def ask(self, file: Any, **options: Any) -> str:
        """Ask for a restoration as a program does; the address of its answer."""
        given = {"trouble": "noise", "clean": False, "noise": 10, "blur": 1, "scale": 2, "mask": None, "color": "black",
                 "missing": 0.5, "strokes": 8, "model": "face-128", "steps": 1, "samples": 1, "seed": 0} | options  # fmt: skip
        data = {"data": [file, *given.values()]}
        call = self.http.post(f"{self.api}call/restore", json=data, timeout=PATIENT)
        return f"{self.api}call/restore/{call.json()['event_id']}"

    def picture(self, name: str, data: bytes, right: float | None) -> str:
        """A picture that is restored, or refused in words."""
        answer = self.http.get(self.ask(self.file(name, data)), timeout=PATIENT).text
        refused = "event: error" in answer
        return "" if refused == (right is None) and "Traceback" not in answer else answer[-300:]

    def layer(self, name: str, data: bytes) -> str:
        """The same as a layer that was painted, through the page's own button."""
        values = [value for _, value in self.inputs]
        for i, (kind, _) in enumerate(self.inputs):
            if kind == "imageeditor":
                values[i] = {"background": None, "layers": [self.file(name, data)], "composite": None, "id": None}
            elif kind == "pictureFile".lower() or (kind == "image" and values[i] is None):
                values[i] = self.file("good.png", saved("PNG", 32))
            elif values[i] == "noise":
                values[i] = "holes"
        session = f"{name}{time.monotonic()}"
        self.http.post(f"{self.api}queue/join", timeout=PATIENT, json={"data": values, "fn_index": self.fn, "session_hash": session})
        with self.http.stream("GET", f"{self.api}queue/data?session_hash={session}", timeout=PATIENT) as lines:
            return next(("" for line in lines.iter_lines() if "process_completed" in line), "no answer")

    def foreign(self, headers: dict[str, str], i: int) -> str:
        """A request of another site, or under the name of another."""
        ways = [("GET", "config", None), ("POST", "gradio_api/upload", b"x"), ("POST", "gradio_api/call/restore", b"{}"),
                ("POST", "gradio_api/queue/join", b"{}"), ("GET", "", None)]  # fmt: skip
        method, path, body = ways[i // 6 % 5]
        status = self.http.request(method, self.url + path, headers=headers, content=body, timeout=PATIENT).status_code
        return "" if status == 403 else f"{method} {path} with {headers} was answered with {status}"

    def flood(self, i: int) -> str:
        """A file of 29 MB, or a message that no page sends."""
        if i % 2:
            status = self.upload("large.png", bytes(29_000_000)).status_code
        else:
            body = json.dumps({"data": ["x" * 10**6] * 8}).encode()
            status = self.http.post(f"{self.api}call/restore", content=body, timeout=PATIENT).status_code
        return "" if status in ((200, 429) if i % 2 else (413, 503)) else f"answered with {status}"

    def bytes(self, noise: bytes, i: int) -> str:
        """No HTTP at all, or one request that does not go on; left open for a while."""
        starts = [b"", b"GET / HTTP/1.1\r\n", b"POST /gradio_api/upload HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n",
                  b"GET /" + b"a" * 10**6, b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nfffffffff\r\n"]  # fmt: skip
        host, port = self.url.split("//")[1].rstrip("/").split(":")
        with socket.create_connection((host, int(port)), timeout=1) as line, suppress(OSError):
            line.sendall(starts[i % 5] + noise)
            line.recv(1000)
        return ""

    def hang_up(self, i: int) -> str:
        """Ask for what takes minutes, and never listen, or not for long."""
        address = self.ask(self.file("long.png", saved("PNG", 256)), **LONG)
        with suppress(self.http.TimeoutException):
            if i % 2:
                self.http.get(address, timeout=0.2)
        return ""


def guess(url: str, password: str) -> str:
    """Try a password."""
    import httpx

    answer = httpx.post(f"{url}login", data={"username": "me", "password": password}, timeout=PATIENT)
    let_in = answer.status_code == 200 or httpx.get(f"{url}config", cookies=answer.cookies).status_code == 200
    return "it was let in" if let_in else ""
