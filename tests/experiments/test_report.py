"""The report's page: what is in it, that it needs nothing else, and that it is well-formed; then in chromium."""

import base64
import io
import json
import re
from html import escape
from html.parser import HTMLParser

import numpy as np
import pytest
from helpers import call, says
from PIL import Image

from experiments import report
from experiments.catalog import STUDIES
from experiments.report import embedded, table_html, write_report
from experiments.shared import Figure, Settings, record
from experiments.tables import Column, Line, Table, metric_columns

EVIL = '<script>alert("x")</script>&'
TABLE = Table(
    "two tasks",
    [*metric_columns(["denoising", "deblurring"]), Column("how", "how")],
    [
        Line("A", {"denoising psnr": 30.0, "deblurring psnr": (20.0, 1.5), "how": "fast"}, {"denoising psnr": 10.0}),
        Line("B", {"denoising psnr": 31.0, "denoising lpips": 0.2}, {"denoising psnr": 12.0, "denoising lpips": 0.1}),
        Line("C", {"denoising psnr": 29.0}),
    ],
)
VOID = {"meta", "link", "img", "br"}


class Page(HTMLParser):
    """A page: its elements, whether they are closed in order, and its text."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.open, self.words = [], [], []
        self.feed(text)
        assert self.open == []
        self.text = " ".join(" ".join(self.words).split())

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] not in ("style", "script"):
            self.words.append(data)

    def all(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]


def picture(path, side=20, noise=False):
    pixels = np.random.default_rng(0).integers(0, 256, (side, 2 * side, 3)) if noise else np.zeros((side, 2 * side, 3))
    path.parent.mkdir(exist_ok=True)
    Image.fromarray(pixels.astype(np.uint8)).save(path)


@pytest.fixture
def out(tmp_path):
    """Three of the catalog's studies: one in full with a closed figure, one quick, one damaged."""
    full, quick, damaged = (study.name for study in STUDIES[:3])
    picture(tmp_path / full / "closed.png")
    picture(tmp_path / full / "open.png", side=30)
    record(
        Settings(tmp_path, command=f"firm reproduce {full} --data {EVIL}"), full, images=12, model=f"m{EVIL}",
        tables=[TABLE], figures=[Figure("closed.png", f"faces {EVIL}"), Figure("open.png", "a curve", free=True)],
        notes=[f"other images {EVIL}", "see `docs`"], seed=17,
    )  # fmt: skip
    record(Settings(tmp_path, quick=True, command="firm reproduce quick"), quick)
    (tmp_path / damaged).mkdir()
    (tmp_path / damaged / "results.json").write_text("{")
    return tmp_path


def written(out, **more):
    return write_report(out, out / "page.html", **more).read_text()


def change(out, i=0, **changes):
    """Change a record."""
    path = out / STUDIES[i].name / "results.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def sections(text):
    """The part of the page that each study has, by name."""
    return {found[1]: found[0] for found in re.finditer(r'<section id="([\w-]+)".*?</section>', text, re.DOTALL)}


def test_the_page_needs_nothing_else_and_its_links_lead_somewhere(out):
    text = written(out)
    page = Page(text)
    assert page.all("html")[0]["lang"] == "en-GB"
    for _, attributes in page.elements:
        for key in ("src", "href", "srcset", "data", "poster", "action"):
            assert attributes.get(key, "#").startswith(("#", "data:"))
    assert not re.search(r"https?://|@import|url\(", text)
    names = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(names) == len(set(names))
    labels = {a["aria-labelledby"] for _, a in page.elements if "aria-labelledby" in a}
    assert {a["href"][1:] for a in page.all("a")} | labels <= set(names)


def test_all_studies_are_in_the_contents(out, tmp_path, monkeypatch):
    text = written(out)
    items = re.findall(r"<li.*?</li>", re.findall(r"<nav.*?</nav>", text, re.DOTALL)[0])
    states = ["full, 0 s", "quick, 0 s", "damaged", *["not run"] * (len(STUDIES) - 3)]
    for study, item, state in zip(STUDIES, items, states, strict=True):
        assert escape(f"{study.paper}: {study.title}") in item
        assert f"<span>{state}</span>" in item
        assert (f'<a href="#{study.name}">' in item) == state.endswith("0 s") == ('class="absent"' not in item)
        if not state.endswith("0 s"):
            data = {"celeba": "--data DIR", "afhq": "--afhq DIR"}
            words = ["firm reproduce", study.name, *(data[name] for name in study.data), f"--out {out}"]
            assert f"<code>{escape(' '.join(words))}</code>" in item
    assert list(sections(text)) == [study.name for study in STUDIES[:2]]
    monkeypatch.chdir(tmp_path)
    record(Settings(), STUDIES[0].name)
    assert says(call("reproduce", "report").output, f"the report of 1 of {len(STUDIES)} studies is outputs/report.html")
    assert "<code>firm reproduce toy</code>" in (tmp_path / "outputs" / "report.html").read_text()  # no --out


def test_a_study_has_all_that_it_should(out):
    full, quick = sections(written(out)).values()
    text = Page(full).text
    for words in ("two tasks", "images 12", "seed 17", "what differs from the paper", "Other images", STUDIES[0].title,
                  f"m{EVIL}", f"firm reproduce {STUDIES[0].name} --data {EVIL}", "torch ", "python "):  # fmt: skip
        assert words.lower() in text.lower()
    assert (report.QUICK in text, report.QUICK in Page(quick).text) == (False, True)
    assert "what differs" not in quick
    assert "<code>docs</code>" in full


def test_what_comes_out_of_json_is_escaped(out):
    change(out, machine=dict.fromkeys(("cpu", "gpu", "cores", "threads", "firm", "torch", "python"), EVIL))
    text = written(out)
    assert EVIL not in text
    assert text.count("<script>") == 1  # ours
    table = Table(EVIL, [Column("x", EVIL, group=EVIL), Column("y", EVIL)], [Line(EVIL, {"x": EVIL}, {"y": EVIL})])
    assert EVIL not in table_html(table)
    assert Page(table_html(table)).text.count(EVIL) == 7


def test_a_table_has_ours_above_the_papers_ranked_apart_and_its_head_groups():
    rows = re.findall(r'<tr class="(\w+)">(.*?)</tr>', table_html(TABLE))
    assert [whose for whose, _ in rows] == ["ours", "paper", "ours", "paper", "ours"]
    cells = [re.findall(r"<td>(.*?)</td>", row) for _, row in rows]
    assert [row[0] for row in cells] == ["<u>30.00</u>", "<u>10.00</u>", "<strong>31.00</strong>",
                                         "<strong>12.00</strong>", "29.00"]  # fmt: skip
    assert (cells[0][3], cells[0][6]) == ("20.00<small>±1.50</small>", "fast")
    labels = re.findall(r'<th scope="rowgroup" rowspan="(\d)">(\w)</th>', table_html(TABLE))
    assert labels == [("2", "A"), ("2", "B"), ("1", "C")]
    top, below = re.findall(r"<tr>(.*?)</tr>", re.findall(r"<thead>(.*?)</thead>", table_html(TABLE))[0])
    assert re.findall(r'scope="colgroup" colspan="(\d)">(\w+)', top) == [("3", "denoising"), ("3", "deblurring")]
    assert re.findall(r'<th scope="col" rowspan="2">(\w+)', top) == ["how"]
    assert re.findall(r'<th scope="col">(\w+)', below) == ["PSNR", "SSIM", "LPIPS"] * 2
    assert re.findall(r'<abbr title="(\w+) is better">', below) == ["higher", "higher", "lower"] * 2
    assert top.startswith('<td rowspan="2"></td>' * 2)  # the method, and whose the numbers are
    plain = table_html(Table("t", [Column("x", "x")], [Line("a", {"x": 1.0})]))
    assert "<thead><tr><td></td><th" in plain
    assert "whose" not in plain
    Page(plain)


def test_figures_are_in_the_page_and_only_free_ones_where_it_is_to_be_published(out):
    text = written(out)
    images = Page(text).all("img")
    assert [(image["alt"], image["width"], image["height"]) for image in images] == [
        (f"faces {EVIL}", "40", "20"), ("a curve", "60", "30"),
    ]  # fmt: skip
    closed, free = (
        base64.b64encode((out / STUDIES[0].name / f"{name}.png").read_bytes()) for name in ("closed", "open")
    )
    assert [image["src"].partition(",")[2].encode() for image in images] == [closed, free]
    figures = re.findall(r"<figure.*?</figure>", text, re.DOTALL)
    assert ["do not publish" in figure for figure in figures] == [True, False]
    assert "This page shows a picture of CelebA or AFHQ: do not publish it." in Page(text).text
    text = written(out, free_only=True)
    assert [image["alt"] for image in Page(text).all("img")] == ["a curve"]
    assert "Left out, because it shows a picture of CelebA or AFHQ: faces" in Page(text).text
    assert ("do not publish" in text, closed.decode() in text) == (False, False)
    place = out / "deep" / "free.html"
    assert call("reproduce", "report", "--out", out, "--free-only", "--page", place).exit_code == 0
    assert place.read_text() == text
    change(out, figures=[{"file": "open.png", "title": "a"}, {"file": "open.png", "title": "b", "free": "no"}])
    assert Page(written(out, free_only=True)).all("img") == []  # the record does not say that they are free


def test_large_photographs_become_jpeg(tmp_path):
    picture(tmp_path / "small.png")
    assert embedded(tmp_path / "small.png")[0] == "png"
    picture(tmp_path / "large.png", side=320, noise=True)
    kind, data, size = embedded(tmp_path / "large.png")
    assert (kind, size) == ("jpeg", (640, 320))
    assert len(data) < (tmp_path / "large.png").stat().st_size
    with Image.open(io.BytesIO(data)) as now, Image.open(tmp_path / "large.png") as old:
        assert np.abs(np.asarray(now, int) - np.asarray(old, int)).mean() < 20


def test_damage_is_named_and_does_not_stop_the_rest(out, capsys):
    full, quick, damaged = (study.name for study in STUDIES[:3])
    sentence = f"{out / damaged / 'results.json'} is damaged, or of another version of firm: run the study again"
    assert sentence in Page(written(out)).text
    assert capsys.readouterr().out.splitlines()[1] == sentence
    path = out / full / "results.json"
    good = json.loads(path.read_text())
    wrong = [
        {"tables": [1]}, {"tables": [{"title": "x"}]}, {"tables": [{**good["tables"][0], "lines": [{"label": 1}]}]},
        {"figures": ["x"]}, {"figures": [{"file": "open.png"}]}, {"notes": [1]},
        {"figures": [{"file": "results.json", "title": "no picture", "free": True}]},
    ]  # fmt: skip
    for changes in wrong:
        path.write_text(json.dumps(good | changes))
        text = written(out)
        assert f"{path}, or a picture beside it, is damaged" in text, changes
        assert list(sections(text)) == [quick]


def test_a_figure_that_is_not_there_or_lies_elsewhere(out):
    picture(out / "elsewhere.png")
    for file in ("none.png", "../elsewhere.png"):
        change(out, figures=[{"file": file, "title": "t", "free": True}])
        page = Page(written(out))
        assert f"The picture {file} is not there (t): run the study again." in page.text
        assert page.all("img") == []


def test_a_report_of_nothing(tmp_path):
    result = call("reproduce", "report", "--out", tmp_path / "no")
    assert (result.exit_code, says(result.output, "run one first, for example `firm reproduce portrait")) == (2, True)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.browser
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "light"), (390, "dark")])
def test_the_page_in_chromium(out, browser, width, scheme):
    wide = Table("wide", metric_columns([f"task {i}" for i in range(8)]), [
        Line(f"method {i}", {f"task {k} {m}": (31.25, 1.5) for k in range(8) for m in ("psnr", "ssim", "lpips")})
        for i in range(3)
    ])  # fmt: skip
    picture(out / STUDIES[3].name / "large.png", side=900)
    record(Settings(out, command="firm reproduce " + "x" * 300), STUDIES[3].name, tables=[wide],
           figures=[Figure("large.png", "large", free=True)])  # fmt: skip
    file = write_report(out, out / "page.html")
    context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
    tab, errors, asked = context.new_page(), [], []
    tab.on("console", lambda message: errors.append(message.text))
    tab.on("pageerror", lambda error: errors.append(str(error)))
    tab.on("request", lambda request: asked.append(request.url))
    tab.goto(file.as_uri())
    size = "[document.documentElement.scrollWidth, document.documentElement.clientWidth]"
    assert tab.evaluate(size) == [width, width]
    box = "[...document.querySelectorAll('main .scroll')].map(e => e.scrollWidth > e.clientWidth)"
    assert tab.evaluate(box)[-1]  # the wide table scrolls in its box
    dark = tab.evaluate("getComputedStyle(document.body).backgroundColor") != "rgb(255, 255, 255)"
    assert dark == (scheme == "dark")
    last = tab.locator("a.enlarge").last
    last.click()
    assert tab.locator(".close:visible").count() == 1
    assert tab.evaluate("document.querySelectorAll('.enlarge:target img')[0].width") == 1800  # as it is
    tab.keyboard.press("Escape")
    tab.wait_for_function("!location.hash.endsWith('-large')")
    assert tab.locator(".close:visible").count() == 0
    last.click()
    tab.locator(".close:visible").click()
    assert tab.locator(".close:visible").count() == 0
    assert tab.evaluate(size) == [width, width]
    assert errors == []
    assert {url.split("#")[0].split(":")[0] for url in asked} <= {"file", "data"}
    context.close()
