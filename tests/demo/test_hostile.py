"""The page as a server: what strangers send, and that the others go on. Every client is on loopback."""

import asyncio
import io
import os
import struct
import time
import zlib
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
from demo.served import demo
from demo.stress import photo
from PIL import Image, UnidentifiedImageError

from firm.data.opening import PictureError
from firm.data.picture import read_picture
from firm.demo.jobs import Progress
from firm.demo.previews import painted
from firm.demo.request import Limits, RequestError
from firm.demo.restorer import Restorer
from firm.demo.workspace import Workspace

pytest.importorskip("gradio", reason="the page's extra")
import httpx  # comes with it

SETTINGS = ("noise", False, 10, 1, 2, None, "black", 0.5, 8, "photo")  # of the endpoint, from trouble to model


def uploaded(url, data, name="a.png"):
    return httpx.post(f"{url}gradio_api/upload", files={"files": (name, data)}, timeout=60)


def joined(url, path, steps=1, samples=1):
    """A request that is put into the queue; nobody listens to it yet."""
    picture = {"path": path, "meta": {"_type": "gradio.FileData"}}
    data = [picture, *SETTINGS, "faithful", steps, None, samples, 0, 1, 10, 0, "rggb"]
    event = httpx.post(f"{url}gradio_api/call/restore", json={"data": data}).json()["event_id"]
    return f"{url}gradio_api/call/restore/{event}"


def answer(stream):
    return httpx.get(stream, timeout=120).text


@pytest.fixture
def upload(page, tmp_path):
    """A picture of 96x96 pixels, uploaded."""
    with open(photo(tmp_path / "p.png", 96, 96), "rb") as file:
        return uploaded(page.url, file.read()).json()[0]


@pytest.mark.parametrize(
    ("header", "value", "served"),
    [
        ("host", "evil.example:{port}", False), ("host", "", False), ("host", "localhost:1", True),
        ("host", "[::1]", True), ("host", "127.0.0.1.evil.example", False), ("host", "192.168.0.1:{port}", False),
        ("host", "notlocalhost", False),
        ("origin", "http://evil.example", False), ("origin", "null", False), ("origin", "http://127.0.0.1:1", False),
        ("origin", "http://127.0.0.1:{port}", True),
    ],
)  # fmt: skip
def test_other_sites_and_rebound_names_are_refused(page, header, value, served):
    headers = {header: value.format(port=page.url.rstrip("/").rpartition(":")[2])}
    codes = (
        httpx.get(f"{page.url}config", headers=headers).status_code,
        httpx.post(f"{page.url}gradio_api/queue/join", headers=headers, json={}).status_code,
    )
    assert codes == ((200, 422) if served else (403, 403))


def test_bodies_larger_than_the_pages_own_are_refused(page):
    join, painting = (f"{page.url}gradio_api/{name}" for name in ("queue/join", "component_server"))
    assert httpx.post(join, content=b"[" * 70_000).status_code == 413
    assert httpx.post(join, content=iter([b"[" * 70_000])).status_code == 411  # in chunks, without a length
    assert httpx.post(painting, content=bytes(1_100_000)).status_code == 413
    assert uploaded(page.url, bytes(31_100_000)).status_code == 413


def ico(side):
    """An icon that says it has 16x16 pixels, and holds a PNG of side x side."""
    held = io.BytesIO()
    Image.new("L", (side, side)).save(held, "PNG")
    return struct.pack("<HHHBBBBHHII", 0, 1, 1, 16, 16, 0, 0, 1, 32, held.tell(), 22) + held.getvalue()


def tiff(side):
    """A TIFF of 10x10 pixels in one tile of side x side."""
    data = zlib.compress(bytes(side * side))
    tags = {
        256: 10, 257: 10, 258: 8, 259: 8, 262: 1, 277: 1, 322: side, 323: side, 324: 8 + 2 + 132 + 4, 325: len(data),
        339: 1,
    }  # fmt: skip
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in sorted(tags.items()))
    return b"II*\0" + struct.pack("<IH", 8, len(tags)) + entries + bytes(4) + data


BOMBS = {
    "eps": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n(%pipe%touch ran) (w) file\n",
    "ico": ico(5000), "qoi": b"qoif" + struct.pack(">IIBB", 8000, 8000, 3, 0) + b"\xfd" * 1000,
}  # fmt: skip


@pytest.mark.parametrize("kind", BOMBS)
def test_every_way_in_takes_the_same_formats_and_checks_the_size_first(ask, restorer, tmp_path, kind):
    bomb = tmp_path / f"bomb.{kind}"
    bomb.write_bytes(BOMBS[kind])
    for way in ({"picture": bomb}, {"trouble": "holes", "mask": bomb}):
        with pytest.raises(PictureError, match="megapixels" if kind == "qoi" else "no picture in a format"):
            restorer.restore(ask(**way), Progress(), tmp_path)
    with pytest.raises(UnidentifiedImageError if kind != "qoi" else ValueError):
        painted([BOMBS[kind]])


def test_a_tile_larger_than_its_picture_is_refused(tmp_path):
    for side in (16, 5000):
        (tmp_path / f"{side}.tif").write_bytes(tiff(side))
    assert read_picture(tmp_path / "16.tif").shape == (3, 10, 10)
    with pytest.raises(PictureError, match="5000x5000"):
        read_picture(tmp_path / "5000.tif", max_megapixels=4)


def test_a_request_may_take_so_many_calls_and_so_long(ask, restorer, tmp_path):
    few = Restorer(restorer.models, Limits(calls=10))
    few.restore(ask(steps=5), Progress(), tmp_path)
    with pytest.raises(RequestError, match="takes 12 calls of the network, more than the 10 that one request may make"):
        few.restore(ask(steps=6), Progress(), tmp_path)
    with pytest.raises(RequestError, match="takes 84 calls"):
        few.compare_steps(ask(), Progress(), tmp_path)
    with pytest.raises(RequestError, match="stopped after 0 minutes, the most"):
        Restorer(restorer.models, Limits(minutes=0)).restore(ask(), Progress(), tmp_path)


def test_nobody_waits_for_a_job_whose_client_has_gone(page, upload):
    answer(joined(page.url, upload))  # the model is there
    with httpx.stream("GET", joined(page.url, upload, steps=50, samples=16), timeout=60):
        time.sleep(1)  # minutes of work, and its client goes
    for _ in range(3):
        joined(page.url, upload, steps=50, samples=16)  # nobody ever listens to these
    start = time.monotonic()
    assert "event: complete" in answer(joined(page.url, upload))
    assert time.monotonic() - start < 20


def test_the_oldest_files_go_when_there_is_no_room(tmp_path):
    workspace = Workspace(tmp_path, megabytes=1)
    kept = workspace.cache / "example.png"
    kept.write_bytes(bytes(900_000))
    workspace.keep_what_is_there()

    def add(client, i):
        file = workspace.cache / f"{i}" / "a.png"
        file.parent.mkdir()
        file.write_bytes(bytes(90_000))
        os.utime(file, (i, i))
        workspace.make_room(client, [str(file)])
        return sorted(int(path.parent.name) for path in workspace.cache.glob("*/a.png"))

    assert [add("a", i) for i in range(3)] == [[0], [0, 1], [1, 2]]  # a fifth for each
    for i in range(3, 12):
        there = add(f"b{i}", i)
    assert there == list(range(1, 12))
    assert add("c", 12) == list(range(2, 13))  # and all together
    assert kept.exists()
    assert not (workspace.cache / "0").exists()
    workspace.remove()


def test_messages_in_memory_are_bounded_together(tmp_path):
    from firm.demo.gate import MAX_HELD, Gate  # stands on gradio

    gate = Gate(None, "127.0.0.1", (), Limits(), Workspace(tmp_path), Counter())
    headers = [(b"host", b"127.0.0.1"), (b"content-length", b"1000000")]
    scope = {"type": "http", "method": "POST", "path": "/component_server", "headers": headers}

    async def send_many():
        told, silent = [], asyncio.Event()

        async def send(message):
            told.append(message.get("status"))

        async def receive():
            return {"type": "http.request"} if told else await silent.wait()

        started = [asyncio.create_task(gate(scope, receive, send)) for _ in range(MAX_HELD // 1_000_000)]
        await asyncio.sleep(0)  # all of them wait for their content
        assert told == []
        told.append(None)
        await gate(scope, receive, send)
        assert told[1] == 503
        for task in started:
            task.cancel()
        await asyncio.gather(*started, return_exceptions=True)
        assert gate.held == 0

    with ThreadPoolExecutor(1) as other:  # playwright, where it is there, has a loop in this thread
        other.submit(lambda: asyncio.run(send_many())).result()


def test_passwords_cannot_be_tried_fast_and_others_do_not_wait(tmp_path):
    right, wrong = ({"username": "me", "password": password} for password in ("secret", "wrong"))
    with demo(tmp_path, "--auth", "me:secret", "--name", "Proxy.example", "--max-uploads", "1") as locked:
        assert httpx.get(f"{locked.url}config").status_code == 401
        assert httpx.get(locked.url, headers={"host": "proxy.example"}).status_code == 200
        seconds = []
        for _ in range(3):
            start = time.monotonic()
            assert httpx.post(f"{locked.url}login", data=wrong).status_code == 400
            seconds.append(time.monotonic() - start)
        assert seconds[0] > 0.4
        assert seconds[2] > 1.9
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(f"{locked.url}login", data=wrong, timeout=0.5)
        forwarded = {"x-forwarded-for": "1.2.3.4"}  # does not make it another visitor
        assert httpx.post(f"{locked.url}login", data=right, headers=forwarded).status_code == 429
        with httpx.Client(transport=httpx.HTTPTransport(local_address="127.0.0.2")) as other:
            start = time.monotonic()
            assert other.post(f"{locked.url}login", data=right).status_code == 200
            assert time.monotonic() - start < 2  # not the 4 seconds of the other
            assert other.get(f"{locked.url}config").status_code == 200
            assert other.post(f"{locked.url}gradio_api/upload", files={"files": bytes(300_000)}).status_code == 429
