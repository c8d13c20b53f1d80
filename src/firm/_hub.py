"""Models on a hub: the folder that `Firm.save_pretrained` writes, and the hub's files for names such as hf://owner/name.

The folder has the layout and the methods the names of huggingface_hub's ``PyTorchModelHubMixin``. The mixin itself
would have to be imported with every model, and it makes a model of its constructor's arguments alone, which here are a
network. huggingface_hub is imported when a name of a hub is used, and only then is anything fetched.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from firm._model_file import read_facts
from firm._util.checks import require
from firm._util.extras import extra
from firm._util.files import write_atomically

if TYPE_CHECKING:
    from firm._model import Firm

PREFIX, WEIGHTS, CONFIG, CARD = "hf://", "model.safetensors", "config.json", "README.md"
USE = "A model of a hub"
# Sets that a card's sentence on its data may name, and what the hub calls them.
DATASETS = {
    "CelebA": "celeba", "AFHQ": "afhq", "Flickr8k": "flickr8k", "ImageNet": "imagenet-1k", "BSDS500": "bsds500"
}  # fmt: skip


def write_folder(model: Firm, folder: Path, metadata: Mapping[str, Any] | None = None) -> None:
    """Write model.safetensors, the same facts as config.json, and the card as README.md."""
    folder.mkdir(parents=True, exist_ok=True)
    model.save(folder / WEIGHTS)
    facts = {key: value for key, value in read_facts(folder / WEIGHTS).items() if key != "file"}
    write_atomically(folder / CONFIG, json.dumps({"library_name": "firm", **facts}, indent=1))
    write_atomically(folder / CARD, card_text(facts, metadata or {}))


def card_text(facts: Mapping[str, Any], metadata: Mapping[str, Any]) -> str:
    """Return the card as Markdown, with the hub's metadata in front; `metadata` changes or adds to it."""
    card: dict[str, Any] = facts["card"]
    name, data = str(card.get("name", "FIRM model")), str(card.get("data", ""))
    trained = card.get("trained_for") or []
    tasks = sorted(
        {task if isinstance(task, str) else task["name"] for task in trained if not isinstance(trained, str)}
    )
    given = {
        "license": card.get("license", "other"),
        "license_name": card.get("license_name", None if "license" in card else "see-model-card"),
        "library_name": "firm",
        "pipeline_tag": "image-to-image",
        "tags": ["firm", "image-restoration", "inverse-problems", "flow-matching", *tasks],
        "datasets": card.get("datasets") or [hub for set_, hub in DATASETS.items() if set_ in data],
        "metrics": ["psnr", "ssim", "lpips"] if card.get("metrics") else [],
        **metadata,
    }
    front = yaml.safe_dump({key: value for key, value in given.items() if value}, sort_keys=False)
    told = {"about": "What it does", "data": "Training data", "notice": "Terms", "limits": "Limits"}
    parts = [f"---\n{front}---\n\n# {name}\n"]
    for key, title in told.items():
        value = card.get(key)
        lines = "\n".join(f"* {line}" for line in value) if isinstance(value, list) else value
        parts += [f"## {title}\n\n{lines}\n"] if value else []
    solver = facts.get("solver", {})
    parts.append(
        "## Use\n\n```python\nimport firm\n\n"
        'model = firm.Firm.from_pretrained("FOLDER or owner/name")  # or firm.load("hf://owner/name")\n'
        "x = firm.restore(model, op, y, sigma=sigma).image\n```\n\n"
        f"A {facts.get('network')} of {facts.get('parameters', 0):,} parameters; K = {solver.get('K')}, "
        f"rho = {solver.get('rho')}, beta = {solver.get('beta')}. The weights' file holds the whole card.\n"
    )
    return "\n".join(parts)


def fetch(name: str, **options: Any) -> Path:
    """Return the file of a model on the hub, ``owner/name`` or ``owner/name@revision``, fetched if it is not there yet.

    `options` are those of ``huggingface_hub.hf_hub_download``: revision, token, cache_dir, local_files_only and others.
    FileNotFoundError says what the hub has answered.
    """
    hub, errors = extra("huggingface_hub", USE, "hub"), extra("huggingface_hub.errors", USE, "hub")

    repository, _, revision = name.removeprefix(PREFIX).partition("@")
    require(repository.count("/") == 1, f"a model of a hub is named hf://owner/name, got {name!r}")
    options = {"revision": revision or None} | options
    try:
        return Path(hub.hf_hub_download(repository, WEIGHTS, library_name="firm", **options))
    except (errors.HfHubHTTPError, errors.HFValidationError, errors.LocalEntryNotFoundError, OSError) as error:
        raise FileNotFoundError(f"the hub has no model {repository!r} for you: {error}") from error


def push(model: Firm, name: str, message: str, metadata: Mapping[str, Any] | None, **options: Any) -> str:
    """Make a repository of a hub if need be, upload the folder of a model, and return the address of the commit.

    `options` are token, private, branch (the revision to write to) and create_pr.
    """
    api = extra("huggingface_hub", USE, "hub").HfApi(token=options.pop("token", None))
    repository = api.create_repo(name, private=options.pop("private", None), exist_ok=True).repo_id
    with tempfile.TemporaryDirectory() as folder:
        write_folder(model, Path(folder), metadata)
        branch = options.pop("branch", None)
        done = api.upload_folder(
            repo_id=repository, folder_path=folder, commit_message=message, revision=branch, **options
        )
    return str(done.commit_url)
