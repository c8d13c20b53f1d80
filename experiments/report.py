"""``firm reproduce report``: one page of all studies that have been run, which needs no other file and no network."""

import base64
import io
import re
import shlex
from html import escape
from pathlib import Path
from typing import Any

from PIL import Image
from rich.console import Console

from experiments.catalog import DATA_OPTIONS, RESULTS, STUDIES, DamagedError, Study, read_record, state
from experiments.tables import Column, Table, cells, groups, read_table
from firm._util.checks import require
from firm._util.files import check_file, write_atomically

TITLE = "FIRM: the paper's tables and figures, run again"
ABOUT = (
    "FIRM restores an image x from a measurement y = A x + noise, where A is known: a blur, a mask, fewer pixels. "
    "It follows a learned flow from noise to a sample of the posterior in N Euler steps. One evaluation of its "
    "velocity is K steps of half-quadratic splitting: an exact solve with A, then a network. This page shows what "
    "<code>firm reproduce</code> has measured, with the paper's numbers beside it."
)
LEGEND = (
    "In the tables our numbers stand above the paper's. The <strong>best</strong> of a column is bold, the "
    "<u>second</u> underlined, of the rows shown; ours and the paper's are ranked apart. ↑ means that "
    "higher is better, ↓ that lower is."
)
QUICK = (
    "Quick run (--quick): few images, and nothing trained. It shows that everything works; "
    "for numbers to compare with the paper's, run it in full."
)
SCRIPT = (
    'addEventListener("keydown", e => { if (e.key === "Escape" && location.hash.endsWith("-large")) '
    'location.hash = location.hash.slice(0, -"-large".length) })'
)
LIMIT = 300_000  # bytes of a PNG; photographs are larger, and go into the page as JPEG
CLOSED = "a picture of CelebA or AFHQ"
WARNING = f"This page shows {CLOSED}: do not publish it. `--free-only` leaves such pictures out."
ARROWS = {"high": " ↑", "low": " ↓"}

Record = dict[str, Any]


def write_report(out: Path, page: Path, free_only: bool = False) -> Path:
    """Build the page from the ``results.json`` of every study in `out`; return where it is.

    `free_only` leaves pictures of data sets out, which may not be published. A damaged study is named in the page.
    """
    found, damaged, sections = dict[str, Record](), dict[str, str](), list[str]()
    for study in STUDIES:
        path = out / study.name / RESULTS
        try:
            record = read_record(path.parent)
            if record is not None:
                sections.append(_section(study, path.parent, record, free_only))
                found[study.name] = record
        except DamagedError as error:
            damaged[study.name] = str(error)
        except (KeyError, TypeError, ValueError, AttributeError, IndexError, OSError):
            damaged[study.name] = f"{path}, or a picture beside it, is damaged: run the study again"
    first = f"run one first, for example `firm reproduce portrait --out {out}`"
    require(found or damaged, f"no study has been run in {out}: {first}", FileNotFoundError)
    check_file(page)
    write_atomically(page, _page(out, found, damaged, "".join(sections), free_only))
    what = f"the report of {len(found)} of {len(STUDIES)} studies is {page} ({page.stat().st_size / 1e6:.1f} MB)"
    Console(highlight=False, markup=False, soft_wrap=True).print("\n".join([what, *damaged.values()]))
    return page


def _page(out: Path, found: dict[str, Record], damaged: dict[str, str], sections: str, free_only: bool) -> str:
    css = Path(__file__).with_name("report.css").read_text("utf-8")
    closed = not free_only and any(figure.get("free") is not True for r in found.values() for figure in r["figures"])
    warnings = "".join(f'<p class="warning">{_prose(w)}</p>' for w in [*([WARNING] * closed), *damaged.values()])
    return (
        '<!DOCTYPE html>\n<html lang="en-GB"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta name="color-scheme" content="light dark"><link rel="icon" href="data:,"><title>{TITLE}</title>'
        f"<style>{css}</style></head>\n<body><header><h1>{TITLE}</h1><p>{ABOUT}</p>{warnings}</header>"
        f"{_contents(out, found, damaged)}{_machines(found)}<main><p>{LEGEND}</p>{sections}</main>"
        f"<script>{SCRIPT}</script></body></html>\n"
    )


def _contents(out: Path, found: dict[str, Record], damaged: dict[str, str]) -> str:
    """All studies; those that were not run with the command that would."""
    items = []
    for study in STUDIES:
        name, about = study.name, f"{escape(study.paper)}: {escape(study.title)}"
        if name in found:
            items.append(f'<li><a href="#{name}">{name}</a> <span>{state(found[name])}</span><br>{about}</li>')
            continue
        words = ["firm reproduce", name, *(f"{DATA_OPTIONS[dataset]} DIR" for dataset in study.data)]
        words += [] if out == Path("outputs") else [f"--out {shlex.quote(str(out))}"]
        how = f"<code>{escape(' '.join(words))}</code>"
        why = "damaged" if name in damaged else "not run"
        items.append(f'<li class="absent"><b>{name}</b> <span>{why}</span><br>{about}<br>{how}</li>')
    return f'<nav aria-labelledby="contents"><h2 id="contents">Contents</h2><ul>{"".join(items)}</ul></nav>'


def _machines(found: dict[str, Record]) -> str:
    """Each machine, with its versions and the studies that ran there."""
    studies: dict[tuple[str, str], list[str]] = {}
    for name, record in found.items():
        studies.setdefault(_machine(record), []).append(name)
    rows = [
        f'<tr><th scope="row">{machine}</th><td>{versions}</td><td>{", ".join(names)}</td></tr>'
        for (machine, versions), names in studies.items()
    ]
    return (
        '<section aria-labelledby="machine"><h2 id="machine">Machine and versions</h2>'
        '<div class="scroll words" role="region" aria-label="Table: machines and versions" tabindex="0"><table><thead>'
        '<tr><th scope="col">machine</th><th scope="col">versions</th><th scope="col">studies</th></tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div></section>"
    )


def _machine(record: Record) -> tuple[str, str]:
    get = record["machine"].get
    parts = [get("gpu"), get("cpu"), f"{get('cores')} cores, threads used: {get('threads')}"]
    versions = ", ".join(f"{key} {get(key)}" for key in ("firm", "torch", "python"))
    return escape("; ".join(str(part) for part in parts if part)), escape(versions)


def _section(study: Study, folder: Path, record: Record, free_only: bool) -> str:
    """One study: what it is, tables, figures, what differs from the paper, and how it was run."""
    name = study.name
    figures = [_figure_html(folder, f, f"{name}-{i}", free_only) for i, f in enumerate(record["figures"], start=1)]
    notes = "".join(f"<li>{_prose(_sentence(note))}</li>" for note in record["notes"])
    facts = {"images": record["images"], "model": record["model"], "seed": record["seed"]}
    shown = [f"{key} {escape(str(value))}" for key, value in facts.items() if value is not None]
    line = " · ".join([*shown, f"time {record['seconds']:,.1f} s", *_machine(record)])
    return "".join([
        f'<section id="{name}" aria-labelledby="{name}-title"><h2 id="{name}-title">{name}</h2>',
        f"<p><b>{escape(_sentence(study.paper))}</b> {escape(_sentence(study.title))}</p>",
        f'<p class="quick">{QUICK}</p>' if record["quick"] else "",
        *[table_html(read_table(table)) for table in record["tables"]],
        *figures,
        f"<h3>Notes: what came out, and what differs from the paper</h3><ul>{notes}</ul>" if notes else "",
        f'<p class="facts">{line}<br><code>{escape(record["command"])}</code></p>',
        '<p class="top"><a href="#contents">Contents</a></p></section>',
    ])  # fmt: skip


def _sentence(words: str) -> str:
    """With a capital letter and a full stop."""
    return words[:1].upper() + words[1:] + ("" if words.endswith((".", "!", "?")) else ".")


def _prose(words: Any) -> str:
    """Text of a study, escaped; what stands between backticks is code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(str(words)))


def table_html(table: Table) -> str:
    """Ours and below it the paper's; best bold, second underlined in each column; scrolls within its box."""
    both = any(line.paper for line in table.lines)
    body = []
    for line in table.lines:
        found = [(whose, cells(table, line, whose, _marked)) for whose in ("ours", "paper") if getattr(line, whose)]
        first = f'<th scope="rowgroup" rowspan="{len(found)}">{escape(str(line.label))}</th>'
        rows = []
        for whose, values in found:
            first += f'<th scope="row" class="whose">{whose}</th>' if both else ""
            rows.append(f'<tr class="{whose}">{first}{"".join(f"<td>{value}</td>" for value in values)}</tr>')
            first = ""
        body.append(f"<tbody>{''.join(rows)}</tbody>" if rows else "")
    two = any(column.group for column in table.columns)  # lines of the head
    tall = ' rowspan="2"' if two else ""
    top, below = [f"<td{tall}></td>" * (2 if both else 1)], []
    for name, members in groups(table):
        if name:
            top.append(f'<th scope="colgroup" colspan="{len(members)}">{escape(name)}</th>')
            below += [_title(table.columns[i], "") for i in members]
        else:
            top += [_title(table.columns[i], tall) for i in members]
    head = f"<tr>{''.join(top)}</tr>" + (f"<tr>{''.join(below)}</tr>" if two else "")
    return (
        f'<div class="scroll" role="region" aria-label="Table: {escape(str(table.title))}" tabindex="0"><table>'
        f"<caption>{_prose(table.title)}</caption><thead>{head}</thead>{''.join(body)}</table></div>"
    )


def _marked(shown: str, place: int) -> str:
    """A value: best bold, second underlined, what stands after ± small."""
    mean, sign, deviation = escape(shown).partition("±")
    mean = {0: f"<strong>{mean}</strong>", 1: f"<u>{mean}</u>"}.get(place, mean)
    return f"{mean}<small>{sign}{deviation}</small>" if sign else mean


def _title(column: Column, tall: str) -> str:
    sign = f'<abbr title="{column.better}er is better">{ARROWS[column.better]}</abbr>' if column.better else ""
    return f'<th scope="col"{tall}>{escape(str(column.title))}{sign}</th>'


def _figure_html(folder: Path, figure: dict[str, Any], name: str, free_only: bool) -> str:
    """A picture in the page, which a click enlarges (by a link, so that it needs no script); `name` is its anchor."""
    title, file, free = str(figure["title"]), str(figure["file"]), figure.get("free") is True
    if not free and free_only:
        return f'<p class="absent">Left out, because it shows {CLOSED}: {_prose(title)}.</p>'
    path = folder / file
    if not path.resolve().is_relative_to(folder.resolve()) or not path.is_file():
        return f'<p class="warning">The picture {escape(file)} is not there ({_prose(title)}): run the study again.</p>'
    kind, data, (width, height) = embedded(path)
    warning = "" if free else f' <strong class="warning">Shows {CLOSED}: do not publish</strong>'
    return (
        f'<figure id="{name}"><a class="enlarge" id="{name}-large" href="#{name}-large">'
        f'<img src="data:image/{kind};base64,{base64.b64encode(data).decode()}" alt="{escape(title)}" '
        f'width="{width}" height="{height}"></a><a class="close" href="#{name}">Close</a>'
        f"<figcaption>{_prose(title)}{warning}</figcaption></figure>"
    )


def embedded(path: Path) -> tuple[str, bytes, tuple[int, int]]:
    """A picture as it goes into the page: kind, bytes, width and height. A large one as JPEG, if that is smaller."""
    data = path.read_bytes()
    with Image.open(io.BytesIO(data)) as picture:
        if len(data) <= LIMIT:
            return "png", data, picture.size
        small, layers = io.BytesIO(), picture.convert("RGBA")
        white = Image.new("RGBA", layers.size, "white")
        Image.alpha_composite(white, layers).convert("RGB").save(small, "JPEG", quality=90, subsampling=0)
        jpeg = small.getvalue()
        return ("jpeg", jpeg, picture.size) if len(jpeg) < len(data) else ("png", data, picture.size)
