"""Our scores beside the published ones: Markdown, LaTeX and a table for the terminal, best and second marked."""

from __future__ import annotations

from collections.abc import Callable

from rich import box
from rich.table import Table

from firm.reproduce.published import METRICS, Scores
from firm.tasks import tables

DIGITS = {"psnr": 2, "ssim": 3, "lpips": 3}
Mark = Callable[[str, int], str]  # a number's text and its rank, 0 for the best


def ranks(scores: Scores, task: str, metric: str) -> dict[str, int]:
    """The place of every method in a column, 0 for the best, as printed: equal numbers share a place."""
    found = {m: round(row[task][metric], DIGITS[metric]) for m, row in scores.items() if metric in row.get(task, {})}
    ordered = sorted(set(found.values()), reverse=metric != "lpips")
    return {method: ordered.index(value) for method, value in found.items()}


def cells(scores: Scores, method: str, task: str, mark: Mark) -> list[str]:
    """The three numbers of a method in a task as text, marked; dashes where it does not do the task."""
    row = scores.get(method, {}).get(task, {})
    places = {metric: ranks(scores, task, metric) for metric in METRICS}
    return [
        mark(f"{row[metric]:.{DIGITS[metric]}f}", places[metric][method]) if metric in row else "-"
        for metric in METRICS
    ]


def markdown(ours: Scores, paper: Scores) -> str:
    """One line a method, PSNR / SSIM / LPIPS of each task, ours and below it the paper's; **best**, *second*."""

    def mark(text: str, rank: int) -> str:
        return {0: f"**{text}**", 1: f"*{text}*"}.get(rank, text)

    lines = ["| | | " + " | ".join(tables()) + " |", "|---" * (2 + len(tables())) + "|"]
    for method in ours:
        for whose, scores in (("ours", ours), ("paper", paper)):
            if method in scores:
                rows = [" / ".join(cells(scores, method, task, mark)) for task in tables()]
                name = method if whose == "ours" else ""
                lines.append(f"| {name} | {whose} | " + " | ".join("-" if r == "- / - / -" else r for r in rows) + " |")
    return "\n".join(lines) + "\n"


def latex(ours: Scores, paper: Scores) -> str:
    r"""The same as a tabular of 15 columns: best \textbf, second \underline; the paper's lines in grey."""

    def mark(text: str, rank: int) -> str:
        return {0: rf"\textbf{{{text}}}", 1: rf"\underline{{{text}}}"}.get(rank, text)

    def line(scores: Scores, method: str, name: str, style: str) -> str:
        row = [style + cell for task in tables() for cell in cells(scores, method, task, mark)]
        return " & ".join([style + name, *row]) + r" \\"

    head = " & ".join(rf"\multicolumn{{3}}{{c}}{{{task}}}" for task in tables())
    out = [
        r"% needs booktabs and xcolor", rf"\begin{{tabular}}{{l *{{{3 * len(tables())}}}{{c}}}}", r"\toprule",
        rf"& {head} \\", "& " + " & ".join(["PSNR & SSIM & LPIPS"] * len(tables())) + r" \\", r"\midrule",
    ]  # fmt: skip
    for method in ours:
        out.append(line(ours, method, method, ""))
        if method in paper:
            out.append(line(paper, method, r"\quad published", r"\color{gray}"))
    return "\n".join([*out, r"\bottomrule", r"\end{tabular}", ""])


def terminal(ours: Scores, paper: Scores) -> Table:
    """PSNR of every method and task, the paper's in brackets."""
    table = Table(title="PSNR in dB: ours (paper)", title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("method", no_wrap=True)
    for task in tables():
        table.add_column(task, justify="right")
    for method, row in ours.items():
        places = {task: ranks(ours, task, "psnr") for task in tables()}
        shown = []
        for task in tables():
            published = paper.get(method, {}).get(task, {}).get("psnr")
            beside = f" ({published:.2f})" if published is not None else ""
            value = f"{row[task]['psnr']:.2f}{beside}" if task in row else "-"
            style = {0: "bold", 1: "italic"}.get(places[task].get(method, 9), "")
            shown.append(f"[{style}]{value}[/{style}]" if style else value)
        table.add_row(method, *shown)
    return table
