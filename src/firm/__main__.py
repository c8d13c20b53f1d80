"""``python -m firm`` is the command line."""

from firm.cli import app

if __name__ == "__main__":
    app()
