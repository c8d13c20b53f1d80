"""``firm serve`` in a process of its own: right answers to many at once, and words for what it does not take."""

import asyncio
import io
import json
import os
import re
import signal
import socket
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from demo.served import demo
from PIL import Image

import firm

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")
httpx = pytest.importorskip("httpx")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    torch.manual_seed(0)
    net = firm.networks.ResUNet(3, widths=(8, 16), blocks=1, noise_level=True)
    path = tmp_path_factory.mktemp("model") / "tiny.safetensors"
    made = firm.Firm(net, firm.Solver(K=2, output="correction"), {"name": "tiny"}).requires_grad_(False).eval()
    made.save(path)
    return made, path


@pytest.fixture(scope="module")
def served(model, tmp_path_factory):
    options = ["--model", str(model[1]), "--queue", "30", "--max-megapixels", "0.1", "--max-megabytes", "1"]
    with demo(tmp_path_factory.mktemp("served"), *options, command="serve") as page:
        yield page


@pytest.fixture(scope="module")
def client(served):
    with httpx.Client(base_url=served.url, timeout=120) as found:
        yield found


def picture(seed, side=32):
    pixels = np.random.default_rng(seed).integers(0, 256, (side, side, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return pixels, file.getvalue()


def post(client, content, **settings):
    return client.post("/v1/restore", files={"picture": ("a.png", content)}, data=settings)


def test_many_clients_get_their_own_pictures(client, model):
    def ask(seed):
        pixels, content = picture(seed)
        return pixels, post(client, content, noise=20, seed=seed)

    with ThreadPoolExecutor(10) as pool:
        answers = list(pool.map(ask, range(40)))
    for seed, (pixels, answer) in enumerate(answers):
        assert answer.status_code == 200, answer.text
        y = torch.from_numpy(pixels).permute(2, 0, 1)[None] / 127.5 - 1
        fast = firm.fast(model[0])
        x = firm.restore(fast, firm.operators.Identity(), y, seed=seed, sigma=40 / 255).image[0]
        wanted = ((x + 1) * 127.5).clamp(0, 255).permute(1, 2, 0).numpy()
        found = np.asarray(Image.open(io.BytesIO(answer.content)), np.float32)
        assert np.abs(found - wanted).mean() < 1.5  # bfloat16 rounds otherwise in a batch
        told = json.loads(answer.headers["firm-settings"])
        assert (told["noise"], told["seed"], told["estimated"]) == (20, seed, False)
    text = client.get("/metrics").text
    images = float(re.search(r"firm_batch_images_sum (\S+)", text)[1])
    batches = float(re.search(r"firm_batch_images_count (\S+)", text)[1])
    assert images >= 40
    assert batches < images  # some were computed together
    assert float(re.search(r'requests_total\{status="200"\} (\d+)', text)[1]) >= 40
    assert "firm_requests_open 0" in text


def test_a_larger_picture_and_sixteen_bits(client):
    answer = post(client, picture(1, 16)[1], trouble="small", scale=3, noise=5, format="png16")
    assert answer.status_code == 200, answer.text
    assert answer.content[16:26] == bytes([0, 0, 0, 48, 0, 0, 0, 48, 16, 2])  # width, height, bits, color


@pytest.mark.parametrize(
    ("content", "settings", "status", "words"),
    [
        (b"no picture", {}, 400, "a.png: no picture"),
        (None, {"steps": "x"}, 422, "steps: input should be a valid integer"),
        (None, {"trouble": "holes"}, 400, "paint over what is missing"),
        (None, {"scale": 7, "trouble": "small"}, 400, "2, 3, 4 times larger"),
        (None, {"model": "/etc/passwd"}, 400, "there is no model"),
        (None, {"seed": -1}, 400, "seed"),
    ],
)
def test_what_cannot_be_done_is_answered_in_words(client, content, settings, status, words):
    answer = post(client, content or picture(0)[1], **settings)
    assert answer.status_code == status
    assert words in answer.json()["detail"]


def test_too_large_a_picture_or_file(client):
    answer = post(client, picture(0, 400)[1])
    assert answer.status_code == 400
    assert "megapixels" in answer.json()["detail"]
    answer = post(client, bytes(1_500_000))  # within the request's limit, beyond the file's
    assert (answer.status_code, "more than 1 MB" in answer.json()["detail"]) == (400, True)
    answer = raw(client, b"POST /v1/restore HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9000000\r\n\r\n")
    assert b" 413 " in answer  # from the header: not a byte was sent
    assert b"larger than two files of 1 MB" in answer
    answer = raw(client, b"POST /v1/restore HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
    assert b" 411 " in answer


def raw(client, request):
    with socket.create_connection((client.base_url.host, client.base_url.port), timeout=30) as line:
        line.sendall(request)
        return line.recv(10_000) + line.recv(10_000)


def test_foreign_names_and_sites_are_refused(client):
    assert client.get("/health", headers={"host": "evil.example"}).status_code == 403
    assert client.get("/health", headers={"origin": "http://evil.example"}).status_code == 403
    assert client.get("/health").json()["status"] == "ok"


def test_the_description_names_every_setting(client):
    described = client.get("/openapi.json").json()
    assert set(described["paths"]) == {"/v1/restore", "/v1/models", "/health", "/metrics"}
    (form,) = (s for name, s in described["components"]["schemas"].items() if name.startswith("Body"))
    assert {"picture", "mask", "trouble", "noise", "blur", "scale", "steps", "seed"} <= set(form["properties"])


def test_more_than_may_wait_are_turned_away(served):
    """Thirty lines that send nothing fill the queue; when they go, there is room again."""
    address = re.search(r"//([\d.]+):(\d+)", served.url)
    start = b"POST /v1/restore HTTP/1.1\r\nHost: localhost\r\nContent-Type: multipart/form-data; boundary=b\r\n"
    lines = [socket.create_connection((address[1], int(address[2])), timeout=30) for _ in range(30)]
    with httpx.Client(base_url=served.url, timeout=60) as client:
        for line in lines:
            line.sendall(start + b"Content-Length: 1000\r\n\r\n--b")
        until(lambda: "firm_requests_open 30" in client.get("/metrics").text)
        answer = post(client, picture(0)[1])
        assert answer.status_code == 503
        assert answer.headers["retry-after"] == "1"
        for line in lines:
            line.close()
        until(lambda: "firm_requests_open 0" in client.get("/metrics").text)
        assert post(client, picture(0)[1], noise=10).status_code == 200


def until(true):
    end = time.monotonic() + 60
    while not true():
        assert time.monotonic() < end
        time.sleep(0.1)


def test_it_ends_when_what_has_arrived_is_answered(model, tmp_path):
    """SIGTERM, as `docker stop` sends it."""
    with demo(tmp_path, "--model", str(model[1]), command="serve") as page:
        content = picture(5, 200)[1]
        with ThreadPoolExecutor(4) as pool:
            answers = [pool.submit(httpx.post, f"{page.url}/v1/restore", files={"picture": content}, timeout=120,
                                   data={"noise": 10, "steps": 6}) for _ in range(4)]  # fmt: skip
            with httpx.Client(base_url=page.url) as client:
                until(lambda: "firm_requests_open 4" in client.get("/metrics").text)
            os.kill(page.process, signal.SIGTERM)
            assert [answer.result().status_code for answer in answers] == [200] * 4
        state = Path(f"/proc/{page.process}/stat")
        until(lambda: state.read_text().rpartition(")")[2].split()[0] == "Z")  # it has ended by itself
    assert "Traceback" not in (tmp_path / "log.txt").read_text()


def test_a_request_that_takes_too_long_is_given_up():
    from fastapi import HTTPException

    from firm.demo.service import answered

    async def is_disconnected():
        return False

    job = SimpleNamespace(done=Future(), gone=threading.Event())
    never, there = SimpleNamespace(submit=lambda job: job.done), SimpleNamespace(is_disconnected=is_disconnected)
    waited = answered(there, job, never, time.monotonic() - 1)
    with ThreadPoolExecutor(1) as other:  # playwright, in other tests, leaves a loop running in this thread
        answer = other.submit(asyncio.run, waited)
    with pytest.raises(HTTPException, match="time for this request is over"):
        answer.result()
    assert job.gone.is_set()
    assert job.done.cancelled()
