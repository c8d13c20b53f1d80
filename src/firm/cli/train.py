"""``firm train CONFIG.yaml key=value …``: Algorithm 1, also under torchrun."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from firm.cli.options import Device, MaxMegapixels, user_errors


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

    from firm._util.checks import require
    from firm._util.custom import CustomCodeError
    from firm._util.machine import choose_device, lacks_memory, ranks
    from firm.training import ConfigError, TrainingError, estimate, loop
    from firm.training.config import dump_config, load_config

    console = Console()
    compiled = False
    with user_errors():
        try:
            resolved = load_config(config, overrides or [])
            compiled = resolved.compile and device != "cpu" and torch.cuda.is_available()
            if dry_run:
                for path in filter(None, (resolved.data, resolved.val_data)):
                    require(Path(path).exists(), f"{path}: there is no such folder or file of images")
                about = estimate.estimate(resolved, choose_device(device))
                console.print(dump_config(resolved), highlight=False, end="")
                for key, value in about.items():
                    console.print(f"# {key}: {value:,}", highlight=False)
                if not resolved.data:
                    console.print("# data is not set: training needs data=DIR", highlight=False)
                return
            with ranks(device) as r:
                result = loop.train(resolved, r, max_megapixels=max_megapixels)
        except (TrainingError, CustomCodeError) as error:  # the latter may come at any step, with the drawn values
            typer.echo(f"Error: {error}", err=True)
            raise typer.Exit(1) from error
        except (MemoryError, RuntimeError) as error:
            if not lacks_memory(error):
                raise
            ways = ("recompute=pointwise", "accumulation_steps=4", "recompute=calls")[0 if compiled else 1 :]
            hint = f"{ways[0]} needs less, then {ways[1]}, then a smaller batch_size"
            raise ConfigError(f"there is not enough memory for this: {hint}") from error
    if not r.main:
        return
    if not result["finished"]:
        console.print(f"stopped at step {result['step']}; the same command continues from there")
        return
    scores = ", ".join(f"{key} {value:.2f} dB" for key, value in result.items() if key.startswith("psnr"))
    console.print(f"done after {result['step']} steps{': ' + scores if scores else ''}; the model is in {resolved.out}")
