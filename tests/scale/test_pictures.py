"""Many pictures: on Ray and under torchrun as in one process, and in object stores; who is killed loses nothing."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from helpers import call, save_pictures, says, tiny_model

from firm.scale.urls import is_url, place

pytestmark = pytest.mark.filterwarnings("default")  # of Ray, and of what it stands on
COUNT = 10
# Ray's own niceness, 15, would have the actors wait for whatever else this machine does.
os.environ |= {"RAY_worker_niceness": "0"}
os.environ["RAY_AUTH_MODE"] = "disabled"


@pytest.fixture(scope="module")
def model_file(tmp_path_factory):
    trained_for = [{"name": "denoising", "sigma": [0.05, 0.4]}]
    return tiny_model(tmp_path_factory.mktemp("model") / "tiny.safetensors", trained_for)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_pictures(tmp_path_factory.mktemp("pictures"), COUNT, (20, 20))


@pytest.fixture(scope="module")
def words(folder, model_file):
    """The command, but for --out."""
    return [folder, "--task", "denoising", "--sigma", 0.1, "--steps", 1, "--model", model_file, "--device", "cpu"]


@pytest.fixture(scope="module")
def one(words, tmp_path_factory):
    """What one process makes of the pictures."""
    out = tmp_path_factory.mktemp("one")
    done = call("restore", *words, "--out", out)
    assert done.exit_code == 0, done.output
    return out


def report(out):
    """restore.json, but for what depends on the time and the place."""
    rows = json.loads((out / "restore.json").read_text())
    return [{key: value for key, value in row.items() if key not in ("seconds", "written")} for row in rows]


def pictures(out):
    return {path.name: path.read_bytes() for path in out.glob("*.png")}


def same(out, one):
    assert len(pictures(one)) == 2 * COUNT
    assert pictures(out) == pictures(one)
    assert report(out) == report(one)
    assert not [path.name for path in out.iterdir() if path.suffix != ".png" and path.name != "restore.json"]


@pytest.fixture(scope="module")
def ray():
    ray = pytest.importorskip("ray")
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False)
    yield ray
    ray.shutdown()


def test_ray_makes_the_same_files(ray, words, one, tmp_path):
    done = call("restore", *words, "--out", tmp_path / "out", "--ray", 2)
    assert done.exit_code == 0, done.output
    same(tmp_path / "out", one)
    again = call("restore", *words, "--out", tmp_path / "out", "--ray", 2)
    assert says(again.output, "nothing to do")


DIES = """
import os, sys, torch
class Dies(torch.nn.Module):
    config = {"channels": 3}
    def __init__(self, channels=3):
        super().__init__()
        self.gain = torch.nn.Parameter(torch.tensor(0.5))
    def forward(self, x, x_t, t):
        mark = os.environ["FIRM_TEST_MARK"]
        if float(x.mean()) > float(os.environ["FIRM_TEST_LEVEL"]):
            try:
                os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                pass
            else:
                os._exit(9)
        return self.gain * x
"""


@pytest.fixture
def deadly(tmp_path, monkeypatch):
    """Options of a network that kills its process, once, at a bright picture."""
    import importlib.util

    import firm

    path = tmp_path / "dies.py"
    path.write_text(DIES)
    spec = importlib.util.spec_from_file_location("dies", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    firm.Firm(module.Dies(), firm.Solver(K=1)).save(tmp_path / "dies.safetensors")
    monkeypatch.setenv("FIRM_TEST_MARK", str(tmp_path / "mark"))
    monkeypatch.setenv("FIRM_TEST_LEVEL", "-1")
    return ["--model", tmp_path / "dies.safetensors", "--network", f"{path}:Dies"]


def test_a_killed_actor_loses_nothing(words, deadly, tmp_path):
    """In a process of its own, whose Ray has the environment that makes the actor die."""
    pytest.importorskip("ray")
    program = [sys.executable, "-m", "firm", "restore", *words[:-4], *deadly, "--device", "cpu", "--out"]
    done = subprocess.run([*map(str, program), str(tmp_path / "out"), "--ray", "2"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "mark").exists(), "nothing was killed"
    calm = subprocess.run([*map(str, program), str(tmp_path / "calm")], capture_output=True, text=True)
    assert calm.returncode == 0, calm.stderr
    same(tmp_path / "out", tmp_path / "calm")


def test_a_killed_rank_is_done_by_the_next_start(words, deadly, tmp_path):
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--rdzv-backend", "c10d"]
    rest = ["-m", "firm", "restore", *map(str, words[:-4]), *map(str, deadly), "--device", "cpu", "--out"]
    program = [*torchrun, "--rdzv-endpoint", "localhost:0", *rest, str(tmp_path / "out")]
    first, again = (subprocess.run(program, capture_output=True, text=True) for _ in range(2))
    assert (tmp_path / "mark").exists()
    assert first.returncode
    assert again.returncode == 0, again.stderr
    calm = [sys.executable, *rest, str(tmp_path / "calm")]
    assert subprocess.run(calm, capture_output=True).returncode == 0
    same(tmp_path / "out", tmp_path / "calm")


def test_pictures_and_results_in_an_object_store(words, one, folder):
    fsspec = pytest.importorskip("fsspec")
    fs = fsspec.filesystem("memory")
    for path in folder.iterdir():
        fs.pipe_file(f"/bucket/in/{path.name}", path.read_bytes())
    rest = ["memory://bucket/in", *words[1:], "--out", "memory://bucket/out"]
    done = call("restore", *rest)
    assert done.exit_code == 0, done.output
    assert says(done.output, "copied to memory://bucket/out")
    found = {name.rsplit("/", 1)[1]: fs.cat_file(name) for name in fs.find("/bucket/out") if name.endswith(".png")}
    assert found == pictures(one)
    rows = json.loads(fs.cat_file("/bucket/out/restore.json"))
    assert rows[0]["picture"] == "memory://bucket/in/000.png"
    assert rows[0]["written"][0].startswith("memory://bucket/out/000_")
    fs.rm_file("/bucket/out/003_restored.png")
    again = call("restore", *rest)
    assert says(again.output, "1 picture restored")
    assert fs.cat_file("/bucket/out/003_restored.png") == found["003_restored.png"]
    missing = call("restore", "memory://bucket/nothing", *words[1:], "--out", "memory://bucket/out")
    assert missing.exit_code == 2
    assert says(missing.output, "nothing there")


@pytest.mark.parametrize("text", ["s3://bucket/a/b", "memory://x", "file:///tmp/a", "gs://b"])
def test_a_url_stays_one_in_spite_of_paths(text):
    from pathlib import Path

    assert place(Path(text)) == text
    assert is_url(Path(text))
    assert not is_url(Path("C:/a"))
    assert place(Path("in/a:b/c")) == "in/a:b/c"


def test_local_paths_need_no_fsspec(words, tmp_path):
    program = (
        "import sys; sys.modules['fsspec'] = None\n"
        "from firm.cli import app; app(standalone_mode=False)"
    )  # fmt: skip
    command = [sys.executable, "-c", program, "restore", *map(str, words), "--out", str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_stopped_start_goes_on(words, one, tmp_path):
    """SIGKILL, whenever it comes."""
    out = tmp_path / "out"
    command = [sys.executable, "-m", "firm", "restore", *map(str, words), "--out", str(out)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    limit = time.monotonic() + 60
    while not (out.exists() and len(list(out.glob("*_restored.png"))) >= 2) and time.monotonic() < limit:
        time.sleep(0.002)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert call("restore", *words, "--out", out).exit_code == 0
    for name, data in pictures(one).items():
        assert (out / name).read_bytes() == data
