"""The page for programs, and what it keeps out. Served by ``firm demo`` in a process of its own."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from demo.stress import bomb, send, storm
from helpers import call, says
from PIL import Image

from firm.data.picture import read_picture
from firm.data.sets import portrait_file

pytestmark = pytest.mark.filterwarnings("ignore")  # of gradio's client and what it stands on


@pytest.fixture(scope="module")
def gradio_client():
    return pytest.importorskip("gradio_client")


@pytest.fixture(scope="module")
def client(page, gradio_client, tmp_path_factory):
    return gradio_client.Client(page.url, verbose=False, download_files=str(tmp_path_factory.mktemp("downloads")))


def test_a_program_restores_a_picture(client, gradio_client):
    png8, png16, more, settings = client.predict(
        picture=gradio_client.handle_file(str(portrait_file())), clean=True, noise=25, samples=2, api_name="/restore"
    )
    assert settings["scores"]["psnr"] > 30
    assert settings["network calls"] == 10
    assert read_picture(png8).shape == (3, 128, 128)
    assert Path(png16).read_bytes()[24] == 16
    assert [Path(path).name for path in more] == ["mean.png", "uncertainty.png", "sample_01.png", "sample_02.png"]


def test_the_example_of_the_docs_runs(page, gradio_client, tmp_path, monkeypatch, capsys):
    text = (Path(__file__).parents[2] / "docs" / "demo.md").read_text()
    (program,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    shutil.copy(portrait_file(), tmp_path / "photo.png")
    monkeypatch.chdir(tmp_path)
    exec(program.replace("http://127.0.0.1:7860", page.url), {})
    assert ".png" in capsys.readouterr().out


def test_a_program_sends_a_mask(client, gradio_client, tmp_path):
    hole = np.zeros((128, 128), np.uint8)
    hole[60:70, 20:100] = 255
    Image.fromarray(hole).save(tmp_path / "hole.png")
    picture, mask = map(gradio_client.handle_file, (str(portrait_file()), str(tmp_path / "hole.png")))
    *_, settings = client.predict(picture=picture, trouble="holes", mask=mask, noise=1, api_name="/restore")
    assert settings["missing"] == pytest.approx(hole.mean() / 255, abs=1e-4)


@pytest.mark.parametrize(
    ("given", "pair"),
    [({"quality": "fast"}, (1, 5)), ({"quality": "fast", "steps": 3, "iterations": 2}, (3, 2))],
)
def test_a_program_asks_for_a_quality(client, gradio_client, given, pair):
    """Of the first model, photo, whose card names no pairs: one step of its own five iterations."""
    *_, settings = client.predict(
        picture=gradio_client.handle_file(str(portrait_file())), noise=25, api_name="/restore", **given
    )
    assert (settings["steps"], settings["iterations"]) == pair
    assert settings["network calls"] == pair[0] * pair[1]
    with pytest.raises(Exception, match="the quality is fast, faithful, detailed, not 'best'"):
        client.predict(picture=gradio_client.handle_file(str(portrait_file())), quality="best", api_name="/restore")


@pytest.mark.parametrize(("given", "words"), [({"steps": 1.5}, "got 1.5"), ({"scale": 2.5}, "not 2.5")])
def test_numbers_that_should_be_whole_are_not_cut_off(client, gradio_client, given, words):
    with pytest.raises(Exception, match=words):
        client.predict(
            picture=gradio_client.handle_file(str(portrait_file())), trouble="small", api_name="/restore", **given
        )


def test_only_the_one_function_is_open_to_programs(client):
    assert list(client.view_api(return_format="dict")["named_endpoints"]) == ["/restore"]


@pytest.mark.parametrize("marked", [True, False], ids=["as a file", "unmarked"])
@pytest.mark.parametrize(
    ("picture", "words"),
    [
        ("http://127.0.0.1:9/x.png", ("takes files, not addresses", "x.png was not uploaded")),
        (str(portrait_file()), ("it was not uploaded by a user", "astronaut.png was not uploaded")),
    ],
)
def test_neither_addresses_nor_the_servers_files_are_read(page, picture, words, marked):
    answer = send(page.url, {"path": picture} | ({"meta": {"_type": "gradio.FileData"}} if marked else {}))
    assert words[not marked] in answer
    assert '"success":false' in answer


def test_the_server_fetches_no_address_for_a_browser(page):
    import httpx

    assert httpx.get(f"{page.url}gradio_api/file=http://127.0.0.1:9/").status_code == 403
    assert httpx.get(f"{page.url}gradio_api/proxy=http://127.0.0.1:9/").status_code == 403
    assert "default-src 'self'" in httpx.get(page.url).headers["content-security-policy"]


def test_a_bomb_is_refused_from_its_header(client, gradio_client, page, tmp_path):
    before = page.megabytes()
    with pytest.raises(Exception, match=r"bomb.png: 20000x20000 pixels are 400.0 megapixels, more than the limit"):
        client.predict(picture=gradio_client.handle_file(bomb(tmp_path / "bomb.png", 20_000)), api_name="/restore")
    assert page.megabytes() < before + 300


def test_many_at_once_are_all_answered(page, gradio_client, tmp_path):
    """A small storm; tests/demo/stress.py has the one of 50."""
    answers = storm(page.url, tmp_path, good=4, broken=1, oversized=2)
    assert [a for a in answers if not a.right] == []


def test_it_listens_on_this_machine_alone_and_keeps_no_request_folders(page):
    port = int(page.url.rstrip("/").rpartition(":")[2])
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    listening = [line.split()[1] for line in lines if line.split()[3] == "0A"]
    assert [where for where in listening if where.endswith(f":{port:04X}")] == [f"0100007F:{port:04X}"]
    assert list(page.temporary.glob("firm-demo-*/request-*")) == []


@pytest.mark.parametrize(
    ("words", "said"),
    [([], 'pip install -e ".[demo]"'), (["--auth", "me"], "NAME:PASSWORD"), (["--device", "tpu"], "--device takes")],
)
def test_the_command_says_what_is_wrong(monkeypatch, words, said):
    monkeypatch.setattr("firm.demo.app.find_spec", lambda name: None)  # as if gradio were not there
    done = call("demo", *words)
    assert (done.exit_code, says(done.output, said)) == (2, True)


def test_the_library_does_not_import_gradio():
    program = "import sys, firm, firm.cli, firm.demo.app; print('gradio' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
