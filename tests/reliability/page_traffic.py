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
from functools import partial
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Any

from commands import Result
from strange_files import images, saved, tiffs

sys.path.insert(0, str(Path(__file__).parents[1]))
COUNT, PATIENCE = 400, 60.0  # requests, and seconds that one may take
SITES = [
    "evil.example",
    "localhost.evil.example",
    "127.0.0.1.evil.example",
    "2130706433",
    "0.0.0.0",
    "[::ffff:1.2.3.4]",
]
STARTS = [b"", b"GET / HTTP/1.1\r\n", b"POST /gradio_api/upload HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n",
          b"GET /" + b"a" * 10**6, b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nfffffffff\r\n"]  # fmt: skip
Asked = tuple[str, Callable[[], str]]  # what it is called, and what asks; that says what was wrong with the answer


def page_traffic(folder: Path, rng: random.Random) -> Result:
    """Requests to a page and to one with a password, on this machine; both must answer others all the time."""
    if find_spec("gradio") is None:
        print("    the page needs gradio, which is not installed here", flush=True)
        return 0, 0, []
    from demo.served import demo

    for name in ("open", "closed"):
        (folder / name).mkdir()
    few = ("--max-megapixels", "2.1")  # as where others are let in
    with demo(folder / "open", *few) as page, demo(folder / "closed", *few, "--auth", "me:right") as closed:
        visitor, asked = Visitor(page.url), list[Asked]()
        for name, data, right in chain(tiffs(), images(), [("2.png", saved("PNG", 1400), 0.0)]):
            asked += [(f"picture {name}", partial(visitor.picture, name, data, right))]
            asked += [(f"layer {name}", partial(visitor.layer, name, data))] if len(asked) % 3 else []
        for i in range(40):
            asked += [(f"host {i}", partial(visitor.foreign, "host", SITES[i % 6], i))]
            asked += [(f"origin {i}", partial(visitor.foreign, "origin", f"http://{SITES[i % 6]}", i))]
            asked += [(f"flood {i}", partial(visitor.flood, i)), (f"password {i}", partial(guess, closed.url, str(i)))]
            asked += [(f"bytes {i}", partial(visitor.no_http, STARTS[i % 5] + rng.randbytes(3000)))]
        gone = [(f"hang-up {i}", partial(visitor.hang_up, i)) for i in range(COUNT - len(asked))]
        rng.shuffle(asked)
        with answering(page.url, closed.url) as wrong, ThreadPoolExecutor(12) as pool:
            for part in (gone, asked):
                wrong += [line for line in pool.map(_told, part) if line]
                start = time.monotonic()
                said = _told(("a visitor", lambda: visitor.picture("good.png", saved("PNG", 32), 0.0)))
                waited = time.monotonic() - start
                wrong += (
                    [f"after {part[0][0]} and others, one waited {waited:.0f} s: {said}"] if said or waited > 30 else []
                )
        kept = sum(path.stat().st_size for path in (folder / "open").rglob("*") if path.is_file()) / 1e6
        peaks = [each.megabytes("VmHWM") for each in (page, closed)]
    print(f"    the pages took {peaks[0]:.0f} and {peaks[1]:.0f} MB of memory, and {kept:.0f} MB of files", flush=True)
    wrong += ["more than 1500 MB of memory"] if max(peaks) > 1500 else []
    wrong += ["more than 1000 MB of visitors' files"] if kept > 1000 else []
    return COUNT - len(wrong), COUNT, wrong


def _told(asked: Asked) -> str:
    name, ask = asked
    try:
        said = ask()
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
    return f"{name}: {said}" if said else ""


@contextmanager
def answering(*urls: str) -> Iterator[list[str]]:
    """Ask for the pages all the time, in threads; the list has the answers that took more than 5 seconds."""
    import httpx

    late, over = list[str](), threading.Event()

    def watch(url: str) -> None:
        while not over.wait(0.3):
            start = time.monotonic()
            said = _told((url, lambda: "" if httpx.get(url, timeout=30).status_code < 500 else "an error"))
            if said or time.monotonic() - start > 5:
                late.append(f"the page answered after {time.monotonic() - start:.1f} s {said}")

    watchers = [threading.Thread(target=watch, args=(url,)) for url in urls]
    for watcher in watchers:
        watcher.start()
    try:
        yield late
    finally:
        over.set()
        for watcher in watchers:
            watcher.join()


class Visitor:
    """What visitors send to a page; each method says what was wrong with the answer, nothing if it was right."""

    def __init__(self, url: str) -> None:
        import httpx

        self.url, self.api, self.http = url, f"{url}gradio_api/", httpx
        config = httpx.get(f"{url}config").json()
        parts = {part["id"]: (part["type"], part["props"].get("value")) for part in config["components"]}
        button = max((d for d in config["dependencies"] if d["api_name"] != "restore"), key=lambda d: len(d["inputs"]))
        self.button, self.inputs = button["id"], [parts[i] for i in button["inputs"]]

    def send(self, path: str, **content: Any) -> Any:
        """Post something."""
        return self.http.post(self.api + path, timeout=PATIENCE, **content)

    def file(self, name: str, data: bytes) -> dict[str, Any]:
        """Bring a file, and name it as the page's events do."""
        path = self.send("upload", files={"files": (name, data)}).json()[0]
        return {"path": path, "orig_name": name, "meta": {"_type": "gradio.FileData"}}

    def ask(self, name: str, data: bytes, steps: int = 1, samples: int = 1) -> str:
        """Ask for a restoration as a program does; the address of its answer."""
        more = ["noise", False, 10, 1, 2, None, "black", 0.5, 8, "face-128", steps, samples, 0]
        call = self.send("call/restore", json={"data": [self.file(name, data), *more]})
        return f"{self.api}call/restore/{call.json()['event_id']}"

    def picture(self, name: str, data: bytes, right: float | None) -> str:
        """A picture that is restored, or refused in words."""
        answer = self.http.get(self.ask(name, data), timeout=PATIENCE).text
        wrong = "Traceback" in answer or ("event: error" in answer) != (right is None)
        return answer[-300:] if wrong else ""

    def layer(self, name: str, data: bytes) -> str:
        """The same as a layer that was painted, with the page's own button."""
        editor = {"background": None, "layers": [self.file(name, data)], "composite": None, "id": None}
        values = [editor if kind == "imageeditor" else value for kind, value in self.inputs]
        values[0] = self.file("good.png", saved("PNG", 32))
        values = ["holes" if value == "noise" else value for value in values]
        session = f"{name}{time.monotonic()}"
        self.send("queue/join", json={"data": values, "fn_index": self.button, "session_hash": session})
        with self.http.stream("GET", f"{self.api}queue/data?session_hash={session}", timeout=PATIENCE) as lines:
            return next(("" for line in lines.iter_lines() if "process_completed" in line), "no answer")

    def foreign(self, header: str, value: str, i: int) -> str:
        """A request of another site, or under the name of another."""
        ways = [("GET", "config"), ("POST", "gradio_api/upload"), ("POST", "gradio_api/queue/join"), ("GET", "")]
        method, path = ways[i // 6 % 4]
        content = b"{}" if method == "POST" else None
        answer = self.http.request(method, self.url + path, headers={header: value}, content=content, timeout=PATIENCE)
        return "" if answer.status_code == 403 else f"{method} /{path} of {value} was answered: {answer.status_code}"

    def flood(self, i: int) -> str:
        """A file of 29 MB, or a message that no page sends."""
        if i % 2:
            status = self.send("upload", files={"files": ("large.png", bytes(29_000_000))}).status_code
        else:
            status = self.send("call/restore", content=json.dumps({"data": ["x" * 10**6] * 8}).encode()).status_code
        return "" if status in ((200, 429) if i % 2 else (413, 503)) else f"answered with {status}"

    def no_http(self, data: bytes) -> str:
        """Bytes that are no request, or one that does not go on."""
        host, port = self.url.split("//")[1].rstrip("/").split(":")
        with suppress(OSError), socket.create_connection((host, int(port)), timeout=1) as line:
            line.sendall(data)
            line.recv(1000)
        return ""

    def hang_up(self, i: int) -> str:
        """Ask for what takes minutes, and never listen, or not for long."""
        address = self.ask("long.png", saved("PNG", 256), 50, 16)
        with suppress(self.http.TimeoutException):
            if i % 2:
                self.http.get(address, timeout=0.2)
        return ""


def guess(url: str, password: str) -> str:
    """Try a password."""
    import httpx

    answer = httpx.post(f"{url}login", data={"username": "me", "password": password}, timeout=PATIENCE)
    let_in = answer.status_code == 200 or httpx.get(f"{url}config", cookies=answer.cookies).status_code == 200
    return "it was let in" if let_in else ""
