import contextvars
import importlib.util
import shutil
import time
from pathlib import Path

import pytest
import torch

CHROMIUM = next(filter(None, (shutil.which(name) for name in ("chromium", "chromium-browser", "google-chrome"))), None)

torch.set_num_threads(1)  # two pytest workers on two cores


def declare_torchvision_operators() -> None:
    """Make torchvision importable where its wheel was built for CUDA and torch was not.

    Its C++ library does not load then, and ``import torchvision`` fails at the first operator it describes. Declaring
    the two is enough for everything but calling them. deepinv imports torchvision, so the tests against it need this.
    """
    spec = importlib.util.find_spec("torchvision")
    if torch.version.cuda is not None or spec is None or spec.origin is None:
        return
    try:
        torch.ops.load_library(Path(spec.origin).with_name("_C.so"))
    except OSError:
        for name in ("nms", "qnms"):
            torch.library.define(f"torchvision::{name}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")


declare_torchvision_operators()


def pytest_collection_modifyitems(items):
    """Skip the tests that need a GPU where there is none; where there is one, warnings of its drivers are no errors."""
    missing = pytest.mark.skip(reason="needs a GPU: run `make test-gpu` on a machine that has one")
    for item in items:
        if item.get_closest_marker("cuda") is not None:
            item.add_marker(pytest.mark.filterwarnings("default") if torch.cuda.is_available() else missing)


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


class Graph:
    """A recording that does its work again, slowly: what one thread writes meanwhile, another must not read."""

    def __init__(self, function):
        self.function, self.out, self.context = function, function(), contextvars.copy_context()
        self.replays = 0

    def replay(self):
        self.replays += 1
        time.sleep(0.002)
        self.out.copy_(self.context.run(self.function))


@pytest.fixture
def as_on_a_gpu(monkeypatch):
    """Record and replay as on a GPU; returns the list of all recordings."""
    from firm.acceleration import graphs

    made = []

    def record(function, trials, before=None):
        made.append(Graph(function))
        return made[-1], made[-1].out

    monkeypatch.setattr(graphs, "_record", record)
    monkeypatch.setattr(graphs, "DEVICE", "cpu")
    return made


@pytest.fixture(scope="session")
def browser():
    """Chromium without a window."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: make test-browser")
    if CHROMIUM is None:
        pytest.skip("no chromium here: apt-get install chromium fonts-dejavu-core")
    with playwright.sync_playwright() as p:
        flags = ["--no-sandbox", "--use-gl=swiftshader", "--enable-unsafe-swiftshader"]
        chromium = p.chromium.launch(executable_path=CHROMIUM, args=flags)
        yield chromium
        chromium.close()
