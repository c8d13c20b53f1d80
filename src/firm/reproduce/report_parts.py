"""The parts of the report's page: a table with our numbers above the paper's, and a figure within the page."""

from __future__ import annotations

import base64
import io
import re
from html import escape
from pathlib import Path
from typing import Any, Literal

from PIL import Image

from firm.reproduce.tables import Column, Table, Whose, cells, groups

LIMIT = 300_000  # bytes of a PNG; photographs are larger, and go into the page as JPEG
CLOSED = "a picture of CelebA or AFHQ"
ARROWS = {"high": (" ↑", "higher is better"), "low": (" ↓", "lower is better"), "": ("", "")}


def prose(words: Any) -> str:
    """Text of a study, escaped; what stands between backticks is code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(str(words)))


def table_html(table: Table) -> str:
    """Ours and below it the paper's; best bold, second underlined in each column; scrolls within its box."""
    both = any(line.paper for line in table.lines)
    body = []
    for line in table.lines:
        found: list[tuple[Whose, list[str]]] = []
        whose: Whose
        for whose in ("ours", "paper"):
            if getattr(line, whose):
                found.append((whose, cells(table, line, whose, _marked)))
        label = f'<th scope="rowgroup" rowspan="{len(found)}">{escape(str(line.label))}</th>'
        rows = []
        for i, (whose, values) in enumerate(found):
            first = (label if i == 0 else "") + (f'<th scope="row" class="whose">{whose}</th>' if both else "")
            rows.append(f'<tr class="{whose}">{first}{"".join(f"<td>{value}</td>" for value in values)}</tr>')
        body.append(f"<tbody>{''.join(rows)}</tbody>" if rows else "")
    title = prose(table.title)
    return (
        f'<div class="scroll" role="region" aria-label="Table: {escape(str(table.title))}" tabindex="0"><table>'
        f"<caption>{title}</caption><thead>{_head(table, both)}</thead>{''.join(body)}</table></div>"
    )


def _marked(shown: str, place: int) -> str:
    """A value: best bold, second underlined, what stands after ± small."""
    mean, sign, deviation = escape(shown).partition("±")
    mean = {0: f"<strong>{mean}</strong>", 1: f"<u>{mean}</u>"}.get(place, mean)
    return f"{mean}<small>{sign}{deviation}</small>" if sign else mean


def _head(table: Table, both: bool) -> str:
    """One line, or two where columns have a group."""
    two = any(column.group for column in table.columns)
    tall = ' rowspan="2"' if two else ""
    top = [f"<td{tall}></td>" * (2 if both else 1)]
    below = []
    for name, members in groups(table):
        if name:
            top.append(f'<th scope="colgroup" colspan="{len(members)}">{escape(name)}</th>')
            below += [_title(table.columns[i], "") for i in members]
        else:
            top += [_title(table.columns[i], tall) for i in members]
    return f"<tr>{''.join(top)}</tr>" + (f"<tr>{''.join(below)}</tr>" if two else "")


def _title(column: Column, tall: str) -> str:
    arrow, meaning = ARROWS[column.better]
    sign = f'<abbr title="{meaning}">{arrow}</abbr>' if arrow else ""
    return f'<th scope="col"{tall}>{escape(str(column.title))}{sign}</th>'


def figure_html(folder: Path, figure: dict[str, Any], name: str, free_only: bool) -> str:
    """A picture in the page, which a click enlarges (by a link, so that it needs no script); `name` is its anchor."""
    title, file, free = str(figure["title"]), str(figure["file"]), figure.get("free") is True
    if not free and free_only:
        return f'<p class="absent">Left out, because it shows {CLOSED}: {prose(title)}.</p>'
    path = folder / file
    if not path.resolve().is_relative_to(folder.resolve()) or not path.is_file():
        return f'<p class="warning">The picture {escape(file)} is not there ({prose(title)}): run the study again.</p>'
    kind, data, (width, height) = embedded(path)
    warning = "" if free else f' <strong class="warning">Shows {CLOSED}: do not publish</strong>'
    return (
        f'<figure id="{name}"><a class="enlarge" id="{name}-large" href="#{name}-large">'
        f'<img src="data:image/{kind};base64,{base64.b64encode(data).decode()}" alt="{escape(title)}" '
        f'width="{width}" height="{height}"></a><a class="close" href="#{name}">Close</a>'
        f"<figcaption>{prose(title)}{warning}</figcaption></figure>"
    )


def embedded(path: Path) -> tuple[Literal["png", "jpeg"], bytes, tuple[int, int]]:
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
