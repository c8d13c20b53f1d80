"""``firm train CONFIG.yaml key=value …``: Algorithm 1, also under torchrun."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from firm.cli.checks import Device, MaxMegapixels


def train(
    config: Annotated[Path, typer.Argument(help="A YAML file of settings (see configs/).")],
    overrides: Annotated[
        list[str] | None, typer.Argument(help="Settings to change, key=value; of the network also network.ch=96.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print all settings, and the memory and time they need; train nothing.")
    ] = False,
    max_megapixels: MaxMegapixels = 64,
    device: Device = None,
) -> None:
    """Train a model. The same command continues a run that was stopped; torchrun spreads it over GPUs and nodes."""
    import torch
    from rich.console import Console

    from firm._util.custom import CustomCodeError
    from firm._util.distributed import ranks
    from firm._util.machine import DeviceError, lacks_memory
    from firm.data import ArrayError, PictureError
    from firm.training.config import ConfigError, dump_config, load_config
    from firm.training.errors import TrainingError
    from firm.training.estimate import estimate
    from firm.training.loop import train as run

    console = Console()
    compiled = False
    try:
        resolved = load_config(config, overrides or [])
        compiled = resolved.compile and device != "cpu" and torch.cuda.is_available()
        if dry_run:
            console.print(dump_config(resolved), highlight=False, end="")
            for key, value in estimate(resolved).items():
                console.print(f"# {key}: {value:,}", highlight=False)
            return
        with ranks(device) as r:
            result = run(resolved, r, max_megapixels=max_megapixels)
    except (
        ConfigError,
        DeviceError,
        PictureError,
        ArrayError,
        FileNotFoundError,
        NotADirectoryError,
        PermissionError,
    ) as error:
        raise typer.BadParameter(str(error)) from error
    except (TrainingError, CustomCodeError) as error:  # the latter may come at any step, with the values drawn for it
        typer.echo(f"Error: {error}", err=True)
        raise typer.Exit(1) from error
    except (MemoryError, RuntimeError) as error:
        if not lacks_memory(error):
            raise
        ways = ("recompute=pointwise", "accumulate=4") if compiled else ("accumulate=4", "recompute=calls")
        hint = f"{ways[0]} needs less, then {ways[1]}, then a smaller batch"
        raise typer.BadParameter(f"there is not enough memory for this: {hint}") from error
    if not r.main:
        return
    if not result["finished"]:
        console.print(f"stopped at step {result['step']}; the same command continues from there")
        return
    scores = ", ".join(f"{key} {value:.2f} dB" for key, value in result.items() if key.startswith("psnr"))
    console.print(f"done after {result['step']} steps{': ' + scores if scores else ''}; the model is in {resolved.out}")
