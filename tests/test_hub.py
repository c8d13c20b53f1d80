"""Models in folders and on a hub: offline, with a server on this machine that speaks as much of the hub's protocol."""

import base64
import hashlib
import json
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import torch
import yaml
from helpers import call, says

import firm
from firm import _hub
from firm._model import bundled_for_images, find
from firm._model_file import read_facts

COMMIT = "1" * 40


def small(seed=0):
    torch.manual_seed(seed)
    net = firm.networks.ResUNet(3, widths=(8, 16), blocks=1, noise_level=True)
    card = {"name": "small", "about": "A test.", "data": "noise that looks like CelebA", "trained_for": ["denoising"]}
    return firm.Firm(net, firm.Solver(K=2, output="correction"), card).requires_grad_(False).eval()


def same(a, b):
    return a.fingerprint() == b.fingerprint() and a.card == b.card


class Hub(BaseHTTPRequestHandler):
    """Serves files of one repository, and takes commits to any."""

    files: dict
    asked: list

    def log_message(self, *_):
        pass

    def answer(self, status, body=b"", **headers):
        self.send_response(status)
        for key, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(key.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_GET(self):
        self.asked.append(f"{self.command} {self.path}")
        body = self.files.get(self.path)
        if body is None:
            self.answer(404, b"", X_Error_Code="RepoNotFound", X_Error_Message="Repository not found")
            return
        self.answer(200, body, ETag=f'"{hashlib.sha256(body).hexdigest()}"', X_Repo_Commit=COMMIT)

    do_HEAD = do_GET  # noqa: N815

    def do_POST(self):
        self.asked.append(f"{self.command} {self.path}")
        size = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(size) if size else self.chunks()
        if self.path == "/api/repos/create":
            name = json.loads(body)["name"]
            said = {"url": f"http://{self.headers['Host']}/me/{name}", "name": f"me/{name}", "id": "1"}
        elif "/preupload/" in self.path:
            files = [file["path"] for file in json.loads(body)["files"]]
            said = {"files": [{"path": p, "uploadMode": "regular", "shouldIgnore": False} for p in files]}
        elif "/commit/" in self.path:
            for line in body.decode().splitlines():
                entry = json.loads(line)
                if entry["key"] == "file":
                    value = entry["value"]
                    self.files[f"/me/pushed/resolve/main/{value['path']}"] = base64.b64decode(value["content"])
            said = {
                "success": True,
                "commitUrl": f"http://{self.headers['Host']}/me/pushed/commit/{COMMIT}",
                "commitOid": COMMIT,
            }
        else:
            said = {"errors": [], "warnings": []}
        self.answer(200, json.dumps(said).encode(), Content_Type="application/json")

    def chunks(self):
        found = b""
        while "chunked" in self.headers.get("Transfer-Encoding", "") and (size := int(self.rfile.readline(), 16)):
            found += self.rfile.read(size)
            self.rfile.readline()
        return found


@pytest.fixture
def hub(tmp_path):
    """The address of a hub with one model, me/small, which answers in this process; and what it was asked."""
    small().save(tmp_path / "on-hub.safetensors")
    content = (tmp_path / "on-hub.safetensors").read_bytes()
    handler = type("Handler", (Hub,), {"files": {"/me/small/resolve/main/model.safetensors": content}, "asked": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}", handler
    server.shutdown()
    server.server_close()


def elsewhere(code, hub, tmp_path, **environment):
    """Run code in a process of its own, whose hub is that address: huggingface_hub reads it when it is imported."""
    places = {"HF_ENDPOINT": hub, "HF_HOME": str(tmp_path / "cache"), "HF_TOKEN": "hf_test", "PATH": "/usr/bin"}
    return subprocess.run(
        [sys.executable, "-c", code], env=places | {"HF_HUB_DISABLE_XET": "1"} | environment,
        capture_output=True, text=True, cwd=tmp_path, timeout=300,
    )  # fmt: skip


def test_a_folder_holds_the_model_and_its_card(tmp_path):
    model = small()
    assert model.save_pretrained(tmp_path / "folder", model_card_kwargs={"license": "mit", "tags": ["mine"]}) is None
    assert {p.name for p in (tmp_path / "folder").iterdir()} == {"model.safetensors", "config.json", "README.md"}
    assert same(firm.Firm.from_pretrained(tmp_path / "folder"), model)
    assert same(firm.load(tmp_path / "folder"), model)
    config = json.loads((tmp_path / "folder/config.json").read_text())
    assert (config["network"], config["solver"]["K"]) == ("ResUNet", 2)
    _, front, text = (tmp_path / "folder/README.md").read_text().split("---\n", 2)
    metadata = yaml.safe_load(front)
    assert metadata["license"] == "mit"
    assert metadata["library_name"] == "firm"
    assert metadata["tags"] == ["mine"]
    assert metadata["datasets"] == ["celeba"]
    assert "# small" in text


@pytest.mark.parametrize("name", bundled_for_images())
def test_the_cards_of_bundled_models_have_the_hubs_metadata(name):
    facts = read_facts(find(name))
    metadata = yaml.safe_load(_hub.card_text(facts, {}).split("---\n")[1])
    assert metadata["license"] == "other"
    assert {"firm", "denoising", "super-resolution"} <= set(metadata["tags"])
    assert metadata["datasets"]


def test_a_model_comes_from_the_hub_once(hub, tmp_path):
    pytest.importorskip("huggingface_hub")
    address, handler = hub
    code = "import firm; print(firm.load('hf://me/small').fingerprint(), firm.Firm.from_pretrained('me/small').card)"
    done = elsewhere(code, address, tmp_path)
    assert done.returncode == 0, done.stderr
    model = small()
    assert done.stdout.strip() == f"{model.fingerprint()} {model.card}"
    assert handler.asked.count("GET /me/small/resolve/main/model.safetensors") == 1
    handler.asked.clear()
    again = elsewhere(code, "http://127.0.0.1:9", tmp_path, HF_HUB_OFFLINE="1")  # from the cache
    assert again.stdout == done.stdout


def test_a_model_that_the_hub_does_not_have(hub, tmp_path):
    pytest.importorskip("huggingface_hub")
    done = elsewhere("import firm; firm.load('hf://me/nothing')", hub[0], tmp_path)
    assert "FileNotFoundError: the hub has no model 'me/nothing' for you" in done.stderr


def test_a_damaged_file_of_the_hub_is_refused(hub, tmp_path):
    pytest.importorskip("huggingface_hub")
    address, handler = hub
    (name, content), *_ = handler.files.items()
    handler.files[name] = content[:-1] + bytes([content[-1] ^ 1])
    done = elsewhere("import firm; firm.load('hf://me/small')", address, tmp_path)
    assert "its digest does not fit" in done.stderr


def test_a_model_is_pushed(hub, tmp_path):
    pytest.importorskip("huggingface_hub")
    address, handler = hub
    model = small()
    model.save_pretrained(tmp_path / "mine")
    code = "import firm; print(firm.load('mine/model.safetensors').push_to_hub('pushed', private=True))"
    done = elsewhere(code, address, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().endswith(f"/commit/{COMMIT}")
    at = "/me/pushed/resolve/main/"
    assert handler.files[f"{at}model.safetensors"] == (tmp_path / "mine/model.safetensors").read_bytes()
    assert handler.files[f"{at}README.md"].startswith(b"---\nlicense: other")
    fetched = elsewhere("import firm; print(firm.load('hf://me/pushed').fingerprint())", address, tmp_path)
    assert fetched.stdout.strip() == model.fingerprint()


def test_nothing_is_fetched_unless_the_name_says_so(monkeypatch):
    monkeypatch.setattr(_hub, "fetch", lambda *_, **__: pytest.fail("fetched"))
    with pytest.raises(FileNotFoundError, match="neither a file nor a bundled model"):
        firm.load("me/small")


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ModuleNotFoundError, match=r"needs huggingface_hub: pip install 'firm\[hub\]'"):
        firm.load("hf://me/small")
    assert says(call("info", "hf://me/small").output, "needs huggingface_hub")  # and no traceback
    monkeypatch.undo()
    pytest.importorskip("huggingface_hub")
    with pytest.raises(ValueError, match="hf://owner/name"):
        firm.load("hf://small")
