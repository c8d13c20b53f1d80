"""What the shell offers when Tab is pressed after an option (``firm --install-completion``)."""

from __future__ import annotations

from firm.tasks import built_in


def simulated_tasks(incomplete: str) -> list[str]:
    """Tasks of ``--simulate``."""
    return [name for name in built_in() if name.startswith(incomplete)]


def picture_tasks(incomplete: str) -> list[str]:
    """Tasks of ``--task``."""
    kinds = dict.fromkeys(task.picture for task in built_in().values() if task.picture)
    return [name for name in kinds if name.startswith(incomplete)]


def model_names(incomplete: str) -> list[str]:
    """Bundled models, and model files where the name begun leads to some."""
    from pathlib import Path

    from firm._model import bundled

    start = Path(incomplete) if incomplete.endswith("/") else Path(incomplete).parent
    places = sorted(start.iterdir()) if start.is_dir() else []
    found = [f"{place}/" if place.is_dir() else str(place) for place in places
             if place.is_dir() or place.suffix == ".safetensors"]  # fmt: skip
    return [name for name in [*bundled(), *found] if name.startswith(incomplete)]
