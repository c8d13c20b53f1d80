"""Tables with our numbers beside the paper's: marks and text by hand."""

from io import StringIO

from rich.console import Console

from experiments.tables import Column, Line, Table, latex, markdown, metric_columns, terminal
from firm.tasks import tables

DENOISING, DEBLURRING, SUPER, RANDOM, BOX = tables()


def scored(**tasks):
    """Scores of tasks as a table has them: "task metric" -> value."""
    metrics = ("psnr", "ssim", "lpips")
    return {f"{task} {m}": v for task, row in tasks.items() for m, v in zip(metrics, row, strict=True)}


TABLE = Table(
    "three tasks",
    metric_columns([DENOISING, DEBLURRING, BOX]),
    [
        Line("Degraded", scored(denoising=(20.0, 0.3, 0.5), deblurring=(27.0, 0.7, 0.1))),
        Line("PnP-HQS", scored(denoising=(32.004, 0.9001, 0.0304))),  # the same as Flower1-OT, as printed
        Line(
            "Flower1-OT",
            scored(denoising=(31.996, 0.9004, 0.0299), deblurring=(35.0, 0.94, 0.02)),
            scored(deblurring=(34.95, 0.947, 0.025)),
        ),
        Line("FIRM N=2", scored(denoising=(31.5, 0.95, 0.04), deblurring=(36.0, 0.95, 0.03))),
    ],
)
DEVIATIONS = Table(
    "",
    [Column("psnr", "PSNR", better="high"), Column("how", "how"), Column("mb", "peak MB", digits=0, better="low")],
    [
        Line("a", {"psnr": (30.001, 1.25), "how": "50 % of x_1", "mb": 331.4}, {"psnr": (40.0, 0.5)}),
        Line("b", {"psnr": (30.004, 2.0), "mb": 331}, {"psnr": (41.5, 0.25), "mb": 743}),
        Line("c", {"psnr": [29.0, 9.0]}),
        Line("only theirs", {}, {"psnr": (12.0, 0.1)}),
    ],
)


def printed(table):
    console = Console(width=140, file=StringIO())
    console.print(terminal(table))
    return console.file.getvalue()


def test_markdown():
    """Marks are those of the printed numbers, ours and the paper's ranked apart; a number alone has none."""
    assert markdown(TABLE).splitlines() == [
        f"|  |  | {DENOISING}: PSNR / SSIM / LPIPS | {DEBLURRING}: PSNR / SSIM / LPIPS | {BOX}: PSNR / SSIM / LPIPS |",
        "|---|---|---|---|---|",
        "| Degraded | ours | 20.00 / 0.300 / 0.500 | 27.00 / 0.700 / 0.100 | - |",
        "| PnP-HQS | ours | **32.00** / *0.900* / **0.030** | - | - |",
        "| Flower1-OT | ours | **32.00** / *0.900* / **0.030** | *35.00* / *0.940* / **0.020** | - |",
        "|  | paper | - | 34.95 / 0.947 / 0.025 | - |",
        "| FIRM N=2 | ours | *31.50* / **0.950** / *0.040* | **36.00** / **0.950** / *0.030* | - |",
    ]
    assert markdown(DEVIATIONS).splitlines() == [
        "|  |  | PSNR | how | peak MB |",
        "|---|---|---|---|---|",
        "| a | ours | **30.00±1.25** | 50 % of x_1 | **331** |",
        "|  | paper | *40.00±0.50* | - | - |",
        "| b | ours | **30.00±2.00** | - | **331** |",
        "|  | paper | **41.50±0.25** | - | 743 |",
        "| c | ours | *29.00±9.00* | - | - |",
        "| only theirs | paper | 12.00±0.10 | - | - |",
    ]
    without = Table("", [Column("x", "x")], [Line("a", {"x": 1.0})])  # whose the numbers are needs no column
    assert markdown(without).splitlines() == ["|  | x |", "|---|---|", "| a | 1.00 |"]


def test_the_terminal_has_the_first_of_every_group_and_the_papers_in_brackets():
    """Whose digits may be others."""
    shown = printed(TABLE)
    assert shown.splitlines()[0].strip() == "three tasks: ours (paper)"
    (line,) = [line for line in shown.splitlines() if "Flower1-OT" in line]
    assert line.split() == ["Flower1-OT", "32.00", "35.00", "(34.95)", "-"]
    assert ("denoising PSNR" in shown, "SSIM" in shown) == (True, False)
    column = Column("s", "s", digits=4, better="low", paper_digits=2)
    table = Table("", [column], [Line("a", {"s": 0.12345}, {"s": 6.37}), Line("b", {"s": 0.12349}, {"s": 6.374})])
    assert markdown(table).splitlines()[2:] == [
        "| a | ours | **0.1235** |", "|  | paper | **6.37** |", "| b | ours | **0.1235** |", "|  | paper | **6.37** |",
    ]  # fmt: skip
    assert "0.1235 (6.37)" in printed(table)


def test_latex():
    found = latex(TABLE)
    assert found.count(r"\begin{tabular}{l *{9}{c}}") == found.count(r"\end{tabular}") == 1
    assert found.count("{") == found.count("}")
    rows = [line.removesuffix(r" \\").split(" & ") for line in found.splitlines() if line.endswith(r"\\")]
    heads = [[cell.removeprefix("& ") for cell in row] for row in rows[:2]]  # the first cell is empty
    assert heads[0] == [rf"\multicolumn{{3}}{{c}}{{{task}}}" for task in (DENOISING, DEBLURRING, BOX)]
    assert heads[1] == ["PSNR", "SSIM", "LPIPS"] * 3
    by_name = {row[0]: row[1:] for row in rows[2:]}
    flower = [r"\textbf{32.00}", r"\underline{0.900}", r"\textbf{0.030}"]
    flower += [r"\underline{35.00}", r"\underline{0.940}", r"\textbf{0.020}"]
    assert by_name["Flower1-OT"] == [*flower, "-", "-", "-"]
    theirs = ["-", "-", "-", "34.95", "0.947", "0.025", *"---"]
    assert by_name[r"\color{gray}\quad published"] == [r"\color{gray}" + cell for cell in theirs]


def test_signs_that_mean_something():
    lines = latex(DEVIATIONS).splitlines()
    assert r"a & \textbf{30.00$\pm$1.25} & 50 \% of x\_1 & \textbf{331} \\" in lines
    theirs = r"\color{gray}only theirs (published) & \color{gray}12.00$\pm$0.10 & \color{gray}- & \color{gray}- \\"
    assert theirs in lines
    assert not [line for line in lines if "multicolumn" in line]  # there are no groups
    found = Table(
        "t", [Column("a", "mass in |v| < 0.75")], [Line("face, x^k & z_k", {"a": 0.5}), Line("100 %", {"a": 1.0})]
    )
    head, rule, *below = markdown(found).splitlines()
    assert head == r"|  | mass in \|v\| < 0.75 |"
    assert rule.count("|") == head.replace(r"\|", "").count("|") == below[0].count("|")
    for shown in (r"face, x\^{}k \& z\_k & 0.50 \\", r"mass in $|$v$|$ $<$ 0.75", r"100 \% & 1.00 \\"):
        assert shown in latex(found)
    brackets = printed(Table("with [network]", [Column("x", "[x]")], [Line("[bold]", {"x": "[dim]"})]))
    assert all(word in brackets for word in ("with [network]", "[x]", "[bold]", "[dim]"))
