"""The page in chromium: what people do with it, at the width of a desk and of a phone."""

import io
import json
import re
import time
from zipfile import ZipFile

import numpy as np
import pytest
from PIL import Image

from firm.data.sets import portrait_file

pytestmark = pytest.mark.browser
PATIENCE = 120_000  # ms: the machine may be busy

OVERFLOW = """() => [...document.querySelectorAll('body *')].filter(e => {
  const box = e.getBoundingClientRect();
  return box.width > 0 && box.right > window.innerWidth + 1 && getComputedStyle(e).visibility !== 'hidden';
}).map(e => `${e.tagName} #${e.id} .${e.className} ${e.getBoundingClientRect().right}`)"""

UNLABELED = """() => [...document.querySelectorAll('input, select, textarea, button')].filter(e => {
  if (!e.checkVisibility() || e.type === 'file') return false;
  const named = e.getAttribute('aria-label') || e.getAttribute('aria-labelledby') || e.title || e.innerText?.trim()
    || e.querySelector('img')?.alt;
  return !named && !(e.labels && [...e.labels].some(l => l.innerText.trim()));
}).map(e => e.outerHTML.slice(0, 200))"""

PALE = """() => {
  const parse = c => { const v = c.match(/[\\d.]+/g).map(Number); return [v[0], v[1], v[2], v.length > 3 ? v[3] : 1]; };
  const line = v => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  const light = c => { const f = c.slice(0, 3).map(line);
                       return 0.2126 * f[0] + 0.7152 * f[1] + 0.0722 * f[2]; };
  const over = (a, b) => [0, 1, 2].map(i => a[i] * a[3] + b[i] * (1 - a[3])).concat(1);
  const behind = e => { let found = [], at = e;
    for (; at; at = at.parentElement) { const c = parse(getComputedStyle(at).backgroundColor);
                                        if (c[3] > 0) found.push(c); if (c[3] === 1) break; }
    return found.reverse().reduce((below, c) => over(c, below), [255, 255, 255, 1]); };
  const bad = [];
  for (const e of document.querySelectorAll('body *')) {
    const text = [...e.childNodes].filter(n => n.nodeType === 3).map(n => n.textContent.trim()).join('');
    if (!text || !e.checkVisibility() || e.closest('[disabled]') || e.closest('script, style')) continue;
    const back = behind(e), front = over(parse(getComputedStyle(e).color), back);
    const [a, b] = [light(front), light(back)].sort((x, y) => y - x), ratio = (a + 0.05) / (b + 0.05);
    if (ratio < 4.5) bad.push(`${text.slice(0, 40)}: ${ratio.toFixed(2)}`);
  }
  return bad;
}"""


class Visit:
    """A tab on the page, and what its browser complained of."""

    def __init__(self, context, url):
        self.url, self.errors, self.outside = url, [], []
        self.tab = context.new_page()
        self.tab.set_default_timeout(PATIENCE)
        self.tab.on("console", lambda m: self.errors.append(m.text) if m.type == "error" else None)
        self.tab.on("pageerror", lambda error: self.errors.append(str(error)))
        self.tab.on("request", self._request)
        self.tab.goto(url)
        self.tab.locator("#restore").wait_for()

    def _request(self, request):
        if not request.url.startswith((self.url, "data:", "blob:")):
            self.outside.append(request.url)

    def upload(self, path):
        self.tab.locator("#picture input[type=file]").set_input_files(path)

    def choose(self, group, label):
        self.tab.locator(f"#{group}").get_by_text(label, exact=True).click()

    def example(self, label, about="pixels;"):
        self.tab.get_by_role("button", name=label).click()
        self.tab.locator("#about-picture").get_by_text(about).wait_for()

    def drag(self, x, y, to_x, to_y):
        self.tab.mouse.move(x, y)
        self.tab.mouse.down()
        self.tab.mouse.move(to_x, to_y, steps=10)
        self.tab.mouse.up()

    def more(self, name):
        control = self.tab.locator(f"#{name} input").first
        if not control.is_visible():
            self.tab.get_by_role("button", name="More").click()
        control.wait_for()

    def set(self, name, value):
        self.more(name)
        self.tab.locator(f"#{name} input[type=number]").fill(str(value))
        self.tab.keyboard.press("Tab")

    def restore(self):
        self.tab.locator("#restore").click()
        self.tab.locator("#status").get_by_text("Done in").wait_for()

    def thumbnails(self, name):
        found = self.tab.locator(f"#{name} .thumbnail-item")
        found.first.wait_for()
        return found.count()

    def download(self, name):
        with self.tab.expect_download() as waiting:
            self.tab.locator(f"#{name}").click()
        with open(waiting.value.path(), "rb") as file:
            return file.read()


@pytest.fixture
def visit(page, browser):
    """Opens tabs; at the end none of them has seen an error, or asked for anything outside this machine."""
    contexts, visits = [], []

    def start(width=1280, height=900, **options):
        contexts.append(browser.new_context(viewport={"width": width, "height": height}, **options))
        visits.append(Visit(contexts[-1], page.url))
        return visits[-1]

    yield start
    for context in contexts:
        context.close()
    assert [error for v in visits for error in v.errors] == []
    assert [address for v in visits for address in v.outside] == []


def test_an_uploaded_picture_is_restored_and_can_be_taken_away(visit):
    v = visit()
    v.upload(portrait_file())
    v.tab.locator("#about-picture").get_by_text("128 x 128 pixels;").wait_for()
    v.more("clean")
    v.tab.locator("#clean input").check()
    v.tab.locator("#noise").wait_for()
    v.set("samples", 3)
    v.restore()
    v.tab.locator("#scores").get_by_text("PSNR").wait_for()
    assert v.thumbnails("gallery") == 3
    for name in ("mean", "heat-map"):
        v.tab.locator(f"#{name} img").wait_for()
    restored = Image.open(io.BytesIO(v.download("same")))
    assert (restored.size, restored.mode) == ((128, 128), "RGB")
    truth = np.asarray(Image.open(portrait_file()).convert("RGB"), dtype=float)
    assert np.sqrt(np.mean((np.asarray(restored, dtype=float) - truth) ** 2)) < 10  # the noise was 25
    assert v.download("png16")[24] == 16  # bits
    settings = json.loads(v.download("settings"))
    assert settings["samples"] == 3
    assert v.tab.locator("#command .cm-content").inner_text() == settings["command"]


def above_the_fold(v, name, height):
    box = v.tab.locator(f"#{name}").bounding_box()
    return box["y"] + box["height"] <= height


@pytest.mark.parametrize(("width", "height"), [(1280, 900), (390, 844)])
def test_a_photograph_is_fixed_in_two_clicks(visit, tmp_path, width, height):
    """Choose it, and press Restore: above the fold, without a word that only researchers know."""
    with Image.open(portrait_file()) as picture:
        pixels = np.asarray(picture.convert("RGB").resize((600, 400)), dtype=float)
    noisy = pixels + 20 * np.random.default_rng(1).standard_normal(pixels.shape)
    Image.fromarray(noisy.clip(0, 255).astype(np.uint8)).save(tmp_path / "holiday.jpg", quality=95)
    v = visit(width, height)
    assert above_the_fold(v, "restore", height)
    words = v.tab.locator("body").inner_text()
    assert not re.search(r"\b(NFE|N|K|sigma|measure\w*|posterior|steps|samples|iterations)\b", words)
    v.upload(tmp_path / "holiday.jpg")
    v.tab.locator("#about-picture").get_by_text("its noise is removed").wait_for()
    assert above_the_fold(v, "restore", height)
    v.tab.locator("#restore").click()
    v.tab.locator("#status").get_by_text(re.compile(r"Restoring: \d+ %")).wait_for()
    v.tab.locator("#status").get_by_text("Done in").wait_for()
    assert v.tab.locator("#status").is_visible()
    restored = v.download("same")
    with Image.open(io.BytesIO(restored)) as picture:
        assert picture.format == "JPEG"
        error = np.asarray(picture, dtype=float) - pixels
    assert np.sqrt(np.mean(error**2)) < 8
    v.tab.locator("#slider img").first.hover(position={"x": 40, "y": 40})
    panes = v.tab.locator("#loupe [data-side]")
    styles = [panes.nth(i).get_attribute("style") for i in range(2)]
    before, after = (re.sub(r"url\(.*?\)", "", style) for style in styles)
    assert before == after  # the same place
    assert styles[0] != styles[1]  # of two pictures


def test_several_pictures_are_restored_together(visit, tmp_path):
    for i, side in enumerate((64, 80)):
        with Image.open(portrait_file()) as picture:
            noise = 20 * np.random.default_rng(i).standard_normal((side, side, 3))
            pixels = np.asarray(picture.convert("RGB").resize((side, side)), dtype=float) + noise
        Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(tmp_path / f"p{i}.jpg", quality=95)
    v = visit()
    with v.tab.expect_file_chooser() as chooser:
        v.tab.locator("#several").click()
    chooser.value.set_files([tmp_path / "p0.jpg", tmp_path / "p1.jpg"])
    v.tab.locator("#about-picture").get_by_text("2 pictures: p0.jpg, p1.jpg").wait_for()
    v.tab.locator("#restore").click()
    v.tab.locator("#status").get_by_text("Done: 2 restored").wait_for()
    assert v.thumbnails("pictures") == 2
    with ZipFile(io.BytesIO(v.download("archive"))) as archive:
        assert archive.namelist() == ["p0_restored.jpg", "p1_restored.jpg"]


def test_it_says_how_sure_it_is(visit):
    v = visit()
    v.example("Noisy")
    v.tab.locator("#sure input").check()
    v.tab.wait_for_timeout(1500)
    v.restore()
    assert v.thumbnails("gallery") == 4
    v.tab.locator("#heat-map img").wait_for()


def test_the_slider_moves_between_before_and_after(visit):
    v = visit()
    v.example("Noisy")
    v.restore()
    v.tab.wait_for_timeout(500)
    box = v.tab.locator("#slider").bounding_box()
    handle = v.tab.locator("#slider [data-testid=slider]")
    before = handle.bounding_box()
    x, y = before["x"] + before["width"] / 2, before["y"] + before["height"] / 2
    v.drag(x, y, box["x"] + box["width"] * 0.3, before["y"] + 20)
    assert handle.bounding_box()["x"] < before["x"] - 50


def test_holes_are_painted_with_a_brush(visit):
    v = visit()
    v.upload(portrait_file())
    v.choose("trouble", "Scratches")
    canvas = v.tab.locator("#painting canvas").first
    canvas.wait_for()
    v.tab.wait_for_timeout(2000)  # the picture is laid under it
    v.tab.locator("#restore").click()
    v.tab.locator("#status").get_by_text("paint over what is missing first").wait_for()
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    v.drag(x - 60, y, x + 60, y)
    v.tab.wait_for_timeout(1000)
    v.restore()
    mask = Image.open(io.BytesIO(v.download("mask")))
    left, top, right, bottom = mask.getbbox()
    assert mask.size == (128, 128)
    assert right - left > 3 * (bottom - top)  # a horizontal stroke
    assert bottom - top <= 3  # as thin as a scratch
    assert abs((left + right) / 2 - 64) < 12
    assert abs((top + bottom) / 2 - 64) < 20
    assert "--mask mask.png" in v.tab.locator("#command .cm-content").inner_text()


def test_a_broken_file_is_told_and_the_page_goes_on(visit, tmp_path):
    broken = tmp_path / "broken.png"
    broken.write_bytes(portrait_file().read_bytes()[:3000])
    v = visit()
    v.upload(broken)
    v.tab.locator("#about-picture").get_by_text("broken.png: damaged or cut short").wait_for()
    v.tab.locator("#restore").click()
    v.tab.locator("#status").get_by_text("Not restored: broken.png").wait_for()
    v.example("Noisy", "128 x 128")
    v.restore()


def test_what_cannot_be_done_is_told(visit):
    v = visit()
    v.tab.locator("#restore").click()
    v.tab.locator("#status").get_by_text("choose a picture first").wait_for()
    v.example("Noisy")
    v.set("steps", 1.5)
    v.tab.locator("#restore").click()
    v.tab.locator("#status").get_by_text("steps must be a whole number from 1 to 50, got 1.5").wait_for()


@pytest.mark.parametrize("example", ["Clean", "Blurred", "Small", "Pixels lost"])
def test_the_examples_bring_their_settings(visit, example):
    v = visit()
    v.example(example)
    v.tab.wait_for_timeout(500)
    v.restore()
    if example == "Blurred":  # its width is estimated
        assert 0.7 < json.loads(v.download("settings"))["blur"] < 1.6


def test_cancel_stops_within_two_seconds(visit):
    v = visit()
    v.example("Noisy", "128 x 128")
    v.set("steps", 50)
    v.tab.locator("#restore").click()
    v.tab.get_by_text("left").first.wait_for()  # the time, in the progress
    start = time.monotonic()
    v.tab.locator("#cancel").click()
    v.tab.locator("#status").get_by_text("Stopped.").wait_for()
    assert time.monotonic() - start < 2
    v.set("steps", 1)
    start = time.monotonic()
    v.restore()  # the machine is free again: 5 network calls, not what was left of 250
    assert time.monotonic() - start < 10


def test_the_other_tabs(visit):
    v = visit()
    v.example("Clean", "128 x 128")
    v.more("model")
    v.tab.locator("#model input").fill("face-128")  # a face; and another model than the first
    v.tab.locator("#model input").press("Enter")
    v.tab.get_by_role("tab", name="Fast or detailed").click()
    v.tab.locator("#compare").click()
    v.tab.locator("#steps-status").get_by_text("Done in").wait_for()
    assert v.thumbnails("steps-gallery") == 5
    v.tab.locator("#steps-plot img").wait_for()
    rows = [row.split("\t") for row in v.tab.locator("#steps-table").inner_text().strip().split("\n")]
    psnr, lpips = [float(row[3]) for row in rows[1:]], [float(row[5]) for row in rows[1:]]
    assert psnr[-1] < psnr[0]  # more distortion
    assert lpips[-1] < lpips[0]  # better perception
    v.tab.get_by_role("tab", name="How it works").click()
    v.tab.locator("#follow").click()
    v.tab.locator("#trajectory-status").get_by_text("5 iterations").wait_for()
    assert v.thumbnails("states") == 2
    assert v.thumbnails("iterates") == 10


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("colors", ["light", "dark"])
def test_everything_fits_is_labeled_and_can_be_read(visit, width, colors):
    v = visit(width, color_scheme=colors)
    for example in ("Clean", "To paint on", "Small"):
        v.tab.get_by_role("button", name=example).click()
        v.tab.wait_for_timeout(1500)
        assert [v.tab.evaluate(found) for found in (OVERFLOW, UNLABELED, PALE)] == [[], [], []]
    v.tab.get_by_role("button", name="Clean").click()
    v.more("noise")
    v.set("samples", 2)
    v.restore()
    v.tab.wait_for_timeout(1000)
    assert [v.tab.evaluate(found) for found in (OVERFLOW, UNLABELED, PALE)] == [[], [], []]
    assert all(
        v.tab.locator(f"#{name}").is_visible() for name in ("restore", "same", "loupe", "settings", "command", "slider")
    )
