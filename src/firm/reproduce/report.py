"""``firm reproduce report``: one page of all studies that have been run, which needs no other file and no network."""

from __future__ import annotations

import shlex
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from rich.console import Console

from firm._util.files import check_file, write_atomically
from firm.reproduce.catalog import STUDIES, Study
from firm.reproduce.listing import DATA_OPTIONS, RESULTS, minutes, read_record
from firm.reproduce.report_parts import CLOSED, figure_html, prose, table_html
from firm.reproduce.tables import read_table

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

Record = dict[str, Any]


def write_report(out: Path, page: Path, free_only: bool = False) -> Path:
    """Build the page from the ``results.json`` of every study in `out`; returns where it is.

    `free_only` leaves pictures of data sets out, which may not be published. A damaged study is named in the page.
    """
    found: dict[str, Record] = {}
    damaged: dict[str, str] = {}
    for study in STUDIES:
        try:
            record = read_record(out / study.name)
            if record is not None:
                found[study.name] = record
        except (ValueError, OSError) as error:
            damaged[study.name] = str(error)
    if not found and not damaged:
        raise FileNotFoundError(
            f"no study has been run in {out}: run one first, for example `firm reproduce portrait --out {out}`"
        )
    check_file(page)
    write_atomically(page, render(out, found, damaged, free_only))
    told = f"the report of {len(found)} of {len(STUDIES)} studies is {page} ({page.stat().st_size / 1e6:.1f} MB)"
    console = Console(highlight=False, markup=False, soft_wrap=True)
    for sentence in (told, *damaged.values()):
        console.print(sentence)
    return page


def render(out: Path, found: dict[str, Record], damaged: dict[str, str], free_only: bool) -> str:
    """The page as text. A study whose results cannot be shown moves from `found` to `damaged`."""
    sections = []
    for study in STUDIES:
        if study.name in found:
            try:
                sections.append(_section(study, out / study.name, found[study.name], free_only))
            except (KeyError, TypeError, ValueError, AttributeError, IndexError, OSError):
                del found[study.name]
                path = out / study.name / RESULTS
                damaged[study.name] = f"{path}, or a picture beside it, is damaged: run the study again"
    css = (files("firm.reproduce") / "report.css").read_text("utf-8")
    closed = not free_only and any(figure.get("free") is not True for r in found.values() for figure in r["figures"])
    warning = f"This page shows {CLOSED}: do not publish it. `--free-only` leaves such pictures out."
    body = [
        f"<header><h1>{TITLE}</h1><p>{ABOUT}</p>",
        "".join(
            f'<p class="warning">{prose(sentence)}</p>'
            for sentence in [*([warning] if closed else []), *damaged.values()]
        ),
        f"</header>{_contents(out, found, damaged)}{_machines(found)}<main><p>{LEGEND}</p>{''.join(sections)}</main>",
    ]
    return (
        '<!DOCTYPE html>\n<html lang="en-GB"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta name="color-scheme" content="light dark"><link rel="icon" href="data:,"><title>{TITLE}</title>'
        f"<style>{css}</style></head>\n<body>{''.join(body)}<script>{SCRIPT}</script></body></html>\n"
    )


def _contents(out: Path, found: dict[str, Record], damaged: dict[str, str]) -> str:
    """All studies; those that were not run with the command that would."""
    items = []
    for study in STUDIES:
        name, about = study.name, f"{escape(study.paper)}: {escape(study.title)}"
        if name in found:
            items.append(f'<li><a href="#{name}">{name}</a> <span>{_state(found[name])}</span><br>{about}</li>')
            continue
        state = "damaged" if name in damaged else "not run"
        command = f"<code>{_command(study, out)}</code>"
        items.append(f'<li class="absent"><b>{name}</b> <span>{state}</span><br>{about}<br>{command}</li>')
    return f'<nav aria-labelledby="contents"><h2 id="contents">Contents</h2><ul>{"".join(items)}</ul></nav>'


def _state(record: Record) -> str:
    return f"{'quick' if record['quick'] else 'full'}, {minutes(record['seconds'] / 60)}"


def _command(study: Study, out: Path) -> str:
    """What would run it."""
    data = [f"{DATA_OPTIONS[dataset]} DIR" for dataset in study.data]
    where = [] if out == Path("outputs") else [f"--out {shlex.quote(str(out))}"]
    return escape(" ".join(["firm reproduce", study.name, *data, *where]))


def _machines(found: dict[str, Record]) -> str:
    """Each machine, with its versions and the studies that ran there."""
    studies: dict[tuple[str, str], list[str]] = {}
    for name, record in found.items():
        studies.setdefault((_machine(record), _versions(record)), []).append(name)
    rows = [
        f'<tr><th scope="row">{machine}</th><td>{versions}</td><td>{", ".join(names)}</td></tr>'
        for (machine, versions), names in studies.items()
    ]
    heads = "".join(f'<th scope="col">{head}</th>' for head in ("machine", "versions", "studies"))
    return (
        '<section aria-labelledby="machine"><h2 id="machine">Machine and versions</h2>'
        '<div class="scroll words" role="region" aria-label="Table: machines and versions" tabindex="0"><table>'
        f"<thead><tr>{heads}</tr></thead><tbody>{''.join(rows)}</tbody></table></div></section>"
    )


def _machine(record: Record) -> str:
    about = record["machine"]
    parts = [about.get("gpu"), about.get("cpu"), f"{about.get('cores')} cores, threads used: {about.get('threads')}"]
    return escape("; ".join(str(part) for part in parts if part))


def _versions(record: Record) -> str:
    return escape(", ".join(f"{key} {record['machine'].get(key)}" for key in ("firm", "torch", "python")))


def _section(study: Study, folder: Path, record: Record, free_only: bool) -> str:
    """One study: what it is, tables, figures, what differs from the paper, and how it was run."""
    name = study.name
    figures = [figure_html(folder, f, f"{name}-{i}", free_only) for i, f in enumerate(record["figures"], start=1)]
    notes = "".join(f"<li>{prose(_sentence(note))}</li>" for note in record["notes"])
    parts = [
        f'<section id="{name}" aria-labelledby="{name}-title"><h2 id="{name}-title">{name}</h2>',
        f"<p><b>{escape(_sentence(study.paper))}</b> {escape(_sentence(study.title))}</p>",
        f'<p class="quick">{QUICK}</p>' if record["quick"] else "",
        *[table_html(read_table(table)) for table in record["tables"]],
        *figures,
        f"<h3>Notes: what came out, and what differs from the paper</h3><ul>{notes}</ul>" if notes else "",
        _facts(record),
        '<p class="top"><a href="#contents">Contents</a></p></section>',
    ]
    return "".join(parts)


def _sentence(words: str) -> str:
    """With a capital letter and a full stop."""
    return words[:1].upper() + words[1:] + ("" if words.endswith((".", "!", "?")) else ".")


def _facts(record: Record) -> str:
    """Images, model, seed, time, machine, versions and command."""
    facts = [
        ("images", record["images"]), ("model", record["model"]), ("seed", record["seed"]),
        ("time", f"{record['seconds']:,.1f} s"),
    ]  # fmt: skip
    shown = [f"{key} {escape(str(value))}" for key, value in facts if value is not None]
    line = " · ".join([*shown, _machine(record), _versions(record)])
    command = escape(record["command"])
    return f'<p class="facts">{line}<br><code>{command}</code></p>'
