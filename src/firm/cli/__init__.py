"""The command line: one sub-command a file. Heavy imports stay inside the commands, so that --help is quick."""

import typer

from firm.cli import bench, evaluate, plot, reproduce, train

app = typer.Typer(
    name="firm",
    help="FIRM: restore images from y = A x + noise with a flow that solves with A in every step.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_show_locals=False,
)
app.command()(train.train)
app.command()(evaluate.evaluate)
app.command()(plot.plot)
app.add_typer(bench.app, name="bench")
app.add_typer(reproduce.app, name="reproduce")
