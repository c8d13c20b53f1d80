"""``python -m firm`` is the command line."""

from firm.cli import app

app()
