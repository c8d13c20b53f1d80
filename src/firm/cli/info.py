"""``firm models`` and ``firm info``: what there is, and what a file or folder holds."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from firm.cli.checks import Key, MaxMegapixels
from firm.cli.complete import model_names

if TYPE_CHECKING:
    from rich.table import Table

Facts = dict[str, Any]


def models() -> None:
    """List the bundled models and, in a checkout, the baselines' networks: tasks, parameters, data."""
    from rich import box
    from rich.console import Console
    from rich.markup import escape
    from rich.padding import Padding
    from rich.table import Table

    from firm._model import bundled, find
    from firm.baselines.weights import folder

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, collapse_padding=True)  # fits 80 columns
    for column in ("name", "for", "parameters", "data"):
        table.add_column(column, justify="right" if column == "parameters" else "left", no_wrap=True)
    paths = [find(name) for name in bundled()] + sorted(folder().glob("*.safetensors"))
    terms: dict[str, list[str]] = {}  # whom they concern
    for path in paths:
        facts = model_facts(path)
        card = facts["card"]
        millions = f"{facts['parameters'] / 1e6:.2f} M"
        row = (path.stem, _tasks(card), millions, re.split(r",| \(", str(card.get("data", "")))[0])
        table.add_row(*map(escape, row))
        for said in (str(card[key]) for key in ("notice", "license") if card.get(key)):
            terms.setdefault(f"{said[:1].upper()}{said[1:].rstrip('.')}.", []).append(path.stem)
    console = Console()
    console.print(table, "")
    for said, names in terms.items():
        console.print(escape(f"{', '.join(names)}:"))
        console.print(Padding(escape(said), (0, 0, 0, 4)))
    console.print("firm info NAME shows everything that is known about one of them.")


def info(
    what: Annotated[
        str,
        typer.Argument(
            metavar="PICTURE|MODEL|RUN",
            help="A picture or array, a model or a baseline's network (name or file), or the folder of a training run, "
            "of an evaluation or of restored pictures.",
            autocompletion=model_names,
        ),
    ],
    key: Key = None,
    max_megapixels: MaxMegapixels = 64,
) -> None:
    """Show what is known about a picture, a model, or the folder that another command wrote."""
    from rich.console import Console

    from firm._model import find
    from firm.baselines.weights import weights_file
    from firm.cli.picture_facts import picture_facts
    from firm.data.array_file import is_array_file

    path = Path(what)
    if key is not None and not is_array_file(path):
        raise typer.BadParameter(f"--key names an array in a file that holds several, and {what} is no such file")
    try:
        if path.is_dir():
            facts = _facts_or_damage(path)
        elif path.suffix == ".safetensors" or not path.exists():
            network = weights_file(what)  # of a baseline, as `firm models` lists them
            facts = model_facts(network if what == path.name and network.is_file() else find(what))
        else:
            facts = picture_facts(path, max_megapixels, key)
    except (ValueError, OSError) as error:
        raise typer.BadParameter(str(error)) from error
    Console().print(_table(facts))


def _facts_or_damage(path: Path) -> Facts:
    """`folder_facts`, with a sentence where a file of the folder is not what it should be."""
    import yaml

    try:
        return folder_facts(path)
    except (TypeError, AttributeError, LookupError, yaml.YAMLError) as error:
        raise ValueError(f"{path}: its files are damaged, or of another program ({error})") from error


def model_facts(path: Path) -> Facts:
    """What a model's file says of itself; only its header is read."""
    import safetensors

    try:
        with safetensors.safe_open(path, framework="pt") as file:
            about: Any = json.loads((file.metadata() or {})["firm"])
            shapes = [file.get_slice(key).get_shape() for key in file.keys()]  # noqa: SIM118 (not a dict)
    except (safetensors.SafetensorError, KeyError, ValueError) as error:
        raise ValueError(f"{path} is not a FIRM model, or is damaged ({error})") from error
    if not isinstance(about, dict) or not isinstance(about.get("card", {}), dict):
        raise ValueError(f"{path}: its FIRM metadata is not valid")
    count = sum(_product(shape) for shape in shapes)
    first = {"file": str(path), "kind": about.get("kind", "firm"), "network": about.get("estimator")}
    known = {key: about[key] for key in ("config", "solver") if about.get(key)}
    size = {"parameters": count, "MB": round(path.stat().st_size / 1e6, 1)}
    return {**first, **size, **known, "card": about.get("card", {})}


def folder_facts(path: Path) -> Facts:
    """A training run, an evaluation or restored pictures, by the files that are there."""
    from firm.training.log import read_log

    if (path / "config.yaml").is_file():
        import yaml

        config = yaml.safe_load((path / "config.yaml").read_text())
        if not isinstance(config, dict):
            raise ValueError(f"{path / 'config.yaml'} holds no settings")
        rows = read_log(path)
        last: Facts = next((row for row in reversed(rows) if "loss" in row), {})
        scores: Facts = next((row for row in reversed(rows) if any("psnr" in key for key in row)), {})
        keys = ("objective", "task", "mixture", "dataset", "data", "size", "network", "K", "batch_size", "max_minutes")
        files = sorted(p.name for p in path.glob("*.safetensors"))
        steps = sorted(p.stem for p in (path / "checkpoints").glob("step_*.pt"))
        settings = {key: config[key] for key in keys if config.get(key)}
        if "mixture" in settings:
            settings.pop("task", None)  # has no effect beside a mixture
        return {"training run": str(path), **settings, "last record": last, "validation": scores,
                "checkpoints": ", ".join(steps) or "none", "models": ", ".join(files) or "none"}  # fmt: skip
    if (path / "config.json").is_file():
        config = json.loads((path / "config.json").read_text())
        if not isinstance(config, dict):
            raise ValueError(f"{path / 'config.json'} holds no settings")
        found = path / "results.json"
        methods = json.loads(found.read_text()).get("methods", {}) if found.is_file() else {}
        return {"evaluation": str(path), "images": len(config.get("files", [])), "tasks": config.get("tasks"),
                "convention": config.get("convention"), "seed": config.get("seed"),
                "methods": ", ".join(methods) or "not finished"}  # fmt: skip
    if (path / "restore.json").is_file():
        return restored_facts(path)
    raise ValueError(
        f"{path} holds neither a training run (config.yaml), nor an evaluation (config.json), nor restored pictures "
        "(restore.json)"
    )


def restored_facts(path: Path) -> Facts:
    """A folder of `firm restore`, by its restore.json."""
    from firm._util.text import in_both_units
    from firm.restoration.earlier import BEGUN, read_rows

    rows = read_rows(path / "restore.json")
    done = [row for row in rows if "error" not in row]
    facts: Facts = {"restored pictures": str(path), "pictures": len(done), "failed": len(rows) - len(done)}
    for key in ("task", "N", "samples"):
        facts[key] = ", ".join(dict.fromkeys(str(row[key]) for row in done if key in row))
    levels = [row["sigma"] for row in done if isinstance(row.get("sigma"), int | float)]
    if levels:
        facts["noise"] = in_both_units(min(levels), max(levels))
    scores = [row["psnr"] for row in done if isinstance(row.get("psnr"), int | float)]
    if scores:
        facts["mean PSNR"] = f"{sum(scores) / len(scores):.2f} dB"
    if (path / BEGUN).is_file():
        facts["state"] = "not finished: the same command goes on"
    return facts


def _product(shape: list[int]) -> int:
    total = 1
    for n in shape:
        total *= n
    return total


def _tasks(card: Facts) -> str:
    trained = card.get("trained_for", [])
    if isinstance(trained, str):
        return trained
    names = dict.fromkeys(str(entry.get("name")) for entry in trained)  # once, however often a mixture has it
    return "\n".join(names) or str(card.get("objective", ""))


def _table(facts: Facts) -> Table:
    """Two columns; what is nested is indented."""
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=box.SIMPLE, show_header=False, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for key, value in facts.items():
        if isinstance(value, dict):
            table.add_row(f"[bold]{escape(key)}[/bold]", "")
            for inner, content in value.items():
                table.add_row(f"  {escape(str(inner))}", escape(_text(content)))
        else:
            table.add_row(f"[bold]{escape(key)}[/bold]", escape(_text(value)))
    return table


def _text(value: Any) -> str:
    """A value for a person: numbers short, what is nested in lines."""
    if isinstance(value, dict):
        return "\n".join(_lines(value))
    if isinstance(value, list) and any(isinstance(v, dict | str) for v in value):
        return "\n".join(_text(v) for v in value)
    if isinstance(value, float):
        return f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _lines(nested: Facts, above: str = "") -> Iterator[str]:
    """One line for every innermost set of values, after the names that lead to it."""
    plain = {key: value for key, value in nested.items() if not isinstance(value, dict)}
    if plain:
        yield f"{above}: " * bool(above) + ", ".join(f"{key} {_text(value)}" for key, value in plain.items())
    for key, value in nested.items():
        if isinstance(value, dict):
            yield from _lines(value, f"{above}, {key}" if above else str(key))
