"""A table with our numbers beside the paper's: Markdown, LaTeX, terminal; best and second of a column marked."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, Literal

from rich import box
from rich.markup import escape
from rich.table import Table as RichTable

Whose = Literal["ours", "paper"]
Value = float | str | tuple[float, float] | list[float]  # a pair is a mean and its standard deviation
Mark = Callable[[str, int], str]  # a cell's text and its place, 0 for the best


@dataclass(frozen=True)
class Column:
    """A column; those of one group stand together under its name, separated by slashes in Markdown."""

    key: str
    title: str
    group: str = ""
    digits: int = 2
    better: Literal["high", "low", ""] = ""
    paper_digits: int | None = None  # where the paper prints another number of them

    def shown(self, whose: Whose) -> int:
        """Digits of our values, or of the paper's."""
        return self.digits if whose == "ours" or self.paper_digits is None else self.paper_digits


@dataclass(frozen=True)
class Line:
    """A row: our values by the columns' keys, and the paper's, where it has some."""

    label: str
    ours: dict[str, Value]
    paper: dict[str, Value] = field(default_factory=dict)


@dataclass(frozen=True)
class Table:
    """A table of the paper, or one beyond it."""

    title: str
    columns: Sequence[Column]
    lines: Sequence[Line]


def read_table(found: dict[str, Any]) -> Table:
    """A table out of results.json."""
    return Table(found["title"], [Column(**c) for c in found["columns"]], [Line(**line) for line in found["lines"]])


METRICS = (
    Column("psnr", "PSNR", digits=2, better="high"),
    Column("ssim", "SSIM", digits=3, better="high"),
    Column("lpips", "LPIPS", digits=3, better="low"),
)


def metric_columns(groups: Sequence[str]) -> list[Column]:
    """PSNR, SSIM and LPIPS of every group (a task, a setting); the keys are "group psnr" and so on."""
    return [replace(column, key=f"{g} {column.key}".strip(), group=g) for g in groups for column in METRICS]


def text(value: Value | None, digits: int) -> str:
    """A value as it is printed."""
    if value is None or isinstance(value, str):
        return "-" if value is None else value
    return "±".join(f"{v:.{digits}f}" for v in (value if isinstance(value, tuple | list) else [value]))


def _places(table: Table, column: Column, whose: Whose) -> dict[str, int]:
    """The place of every line in a column, 0 for the best, as printed: equal numbers share a place.

    A number that stands alone has none.
    """
    values = {line.label: getattr(line, whose).get(column.key) for line in table.lines if column.better}
    means = {label: value[0] if isinstance(value, tuple | list) else value for label, value in values.items()}
    digits = column.shown(whose)
    found = {label: round(mean, digits) for label, mean in means.items() if isinstance(mean, int | float)}
    ordered = sorted(set(found.values()), reverse=column.better == "high")
    return {label: ordered.index(value) for label, value in found.items()} if len(found) > 1 else {}


def cells(table: Table, line: Line, whose: Whose, mark: Mark) -> list[str]:
    """The line's values as text, marked; dashes where there is none."""
    out = []
    for column in table.columns:
        value = getattr(line, whose).get(column.key)
        shown = text(value, column.shown(whose))
        out.append(shown if value is None else mark(shown, _places(table, column, whose).get(line.label, 9)))
    return out


def groups(table: Table) -> list[tuple[str, list[int]]]:
    """The groups in their order, each with the numbers of its columns; a column without a group is one by itself."""
    keyed = groupby(range(len(table.columns)), key=lambda i: table.columns[i].group or i)
    return [("" if isinstance(name, int) else name, list(members)) for name, members in keyed]


def markdown(table: Table) -> str:
    """Two lines a method, ours and below it the paper's; **best**, *second*."""

    def mark(shown: str, place: int) -> str:
        return {0: f"**{shown}**", 1: f"*{shown}*"}.get(place, shown)

    def piped(parts: Sequence[str]) -> str:
        return "| " + " | ".join(part.replace("|", r"\|") for part in parts) + " |"

    titles = [(name, " / ".join(table.columns[i].title for i in members)) for name, members in groups(table)]
    heads = [f"{name}: {title}" if name else title for name, title in titles]
    whose_column = [""] if any(line.paper for line in table.lines) else []
    lines = [piped(["", *whose_column, *heads]), "|---" * (len(heads) + 1 + len(whose_column)) + "|"]
    for line in table.lines:
        for whose in ("ours", "paper"):
            if getattr(line, whose):
                found = cells(table, line, whose, mark)
                joined = [[found[i] for i in members] for _, members in groups(table)]
                shown = ["-" if set(part) == {"-"} else " / ".join(part) for part in joined]
                label = line.label if whose == "ours" or not line.ours else ""
                lines.append(piped([label, *(whose for _ in whose_column), *shown]))
    return "\n".join(lines) + "\n"


def latex(table: Table) -> str:
    r"""A tabular: best \textbf, second \underline; the paper's lines in gray. Needs booktabs and xcolor."""

    def mark(shown: str, place: int) -> str:
        shown = _escaped(shown)
        return {0: rf"\textbf{{{shown}}}", 1: rf"\underline{{{shown}}}"}.get(place, shown)

    def row(line: Line, whose: Whose, name: str, style: str) -> str:
        return " & ".join(style + part for part in (name, *cells(table, line, whose, mark))) + r" \\"

    spans = [(name, rf"\multicolumn{{{len(members)}}}{{c}}{{{_escaped(name)}}}") for name, members in groups(table)]
    heads = [span if name else "" for name, span in spans]
    out = ["% needs booktabs and xcolor", rf"\begin{{tabular}}{{l *{{{len(table.columns)}}}{{c}}}}", r"\toprule"]
    out += ["& " + " & ".join(heads) + r" \\"] if any(heads) else []
    out += ["& " + " & ".join(_escaped(column.title) for column in table.columns) + r" \\", r"\midrule"]
    for line in table.lines:
        label = _escaped(line.label)
        out += [row(line, "ours", label, "")] if line.ours else []
        name = r"\quad published" if line.ours else label + " (published)"
        out += [row(line, "paper", name, r"\color{gray}")] if line.paper else []
    return "\n".join([*out, r"\bottomrule", r"\end{tabular}", ""])


def _escaped(shown: str) -> str:
    signs = {letter: f"\\{letter}" for letter in "%_&#"} | {"^": r"\^{}", "±": r"$\pm$", "|": "$|$", "<": "$<$"}
    return "".join(signs.get(letter, letter) for letter in shown)


def terminal(table: Table) -> RichTable:
    """The first column of every group, the paper's values in brackets."""
    wanted = [table.columns[members[0]] for _, members in groups(table)]
    title = f"{table.title}: ours (paper)" if any(line.paper for line in table.lines) else table.title
    out = RichTable(title=escape(title), title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    out.add_column("", no_wrap=True)
    for column in wanted:
        out.add_column(escape(f"{column.group} {column.title}".strip()), justify="right")
    for line in table.lines:
        row = []
        for column in wanted:
            beside = f" ({text(line.paper[column.key], column.shown('paper'))})" if column.key in line.paper else ""
            style = {0: "bold", 1: "italic"}.get(_places(table, column, "ours").get(line.label, 9), "")
            shown = escape(text(line.ours.get(column.key), column.digits) + beside)
            row.append(f"[{style}]{shown}[/{style}]" if style else shown)
        out.add_row(escape(line.label), *row)
    return out
