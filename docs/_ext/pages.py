"""Pages that are made, not written: the API reference from the public names, and the READMEs of the experiments.

Links in Markdown files work in the repository. Here they are pointed at the pages of the site, and links to files
that are not pages (code, configurations, numbers) become plain text.
"""

import ast
import os
import re
import shutil
from importlib import import_module
from pathlib import Path

from sphinx.errors import ExtensionError

DOCS = Path(__file__).parents[1]
ROOT = DOCS.parent
MOUNTED = {  # file of the repository: page of the site
    **{str(p.relative_to(ROOT)): f"results/{p.parent.name}.md"  # of the paper's studies, and of the notes
       for p in sorted((ROOT / "experiments").rglob("*/README.md"))},
    "weights/README.md": "results/baseline-weights.md",
    "CHANGELOG.md": "results/changelog.md",
    "CONTRIBUTING.md": "results/contributing.md",
    "LICENSE-WEIGHTS.md": "results/license-weights.md",
}  # fmt: skip
OTHER = {
    **dict.fromkeys(("examples", "examples/README.md", "examples/gallery"), "gallery/index.rst"),
    "README.md": "index.md",
}
LINK = re.compile(r"(!?)\[((?:[^\]\\`]|`[^`]*`|\\.)*)\]\(([^)\s#]+)(#[^)\s]*)?\)")
PACKAGES = {
    "firm": "The public surface: load, sample, restore, and the paper's algorithms.",
    "firm.operators": "Forward operators, their solves, patterns and checks.",
    "firm.tasks": "What the paper's tables and `firm restore --simulate` degrade images with.",
    "firm.restoration": "From files to problems and back; large pictures; noise.",
    "firm.restoration.calibration": "Standard deviations that hold what they promise.",
    "firm.networks": "Networks, the paper's and the baselines'.",
    "firm.training": "Configuration and training loop.",
    "firm.evaluation": "Methods over tasks and images.",
    "firm.baselines": "The ten methods of the paper's comparison.",
    "firm.noise": "Noise models: likelihoods, how to draw and to estimate them.",
    "firm.blind": "Unknown blur: the kernel from the picture alone.",
    "firm.scale": "Many machines, huge arrays, other runtimes.",
    "firm.metrics": "PSNR, SSIM, LPIPS, and metrics of posterior samples.",
    "firm.data": "Pictures and arrays.",
    "firm.acceleration": "The same numbers sooner.",
}


def public_names(package):
    """What a package's ``__init__`` exports: ``import x as x``, and its own classes and functions."""
    tree = ast.parse(Path(import_module(package).__file__).read_text())
    exported = [
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname == alias.name
    ]
    own = [n.name for n in tree.body if isinstance(n, ast.FunctionDef | ast.ClassDef) and not n.name.startswith("_")]
    names = dict.fromkeys(exported + own)
    return [name for name in names if f"{package}.{name}" not in PACKAGES]


def write_api(folder):
    """One page a package, with a table of its names; autosummary writes a page for each."""
    folder.mkdir(exist_ok=True)
    place = {}  # an object that two packages export is described in the first
    for package, about in PACKAGES.items():
        module = import_module(package)
        lines = [package, "=" * len(package), "", about, "", f".. currentmodule:: {package}", ""]
        lines += [".. autosummary::", "   :toctree: generated", "   :nosignatures:", ""]
        elsewhere = []
        for name in public_names(package):
            value = getattr(module, name)
            if not callable(value):
                continue  # constants
            if place.setdefault(id(value), f"{package}.{name}") == f"{package}.{name}":
                lines.append(f"   {name}")
            else:
                elsewhere.append(f"``{name}`` is :py:obj:`{place[id(value)]}`.")
        lines += ["", *elsewhere]
        write(folder / f"{package}.rst", "\n".join(lines) + "\n")


def write(path, text):
    """Leave a file alone that has not changed, so that Sphinx need not read it again."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.is_file() or path.read_text() != text:
        path.write_text(text)


def relinked(text, source, page):
    """The links of `source`, a path of the repository, as they are on `page`, a path below docs/."""

    def link(match):
        image, label, target, anchor = match.groups()
        if re.match(r"[a-z]+:", target):
            return match[0]
        path = os.path.normpath(Path(source).parent / target)
        if image:
            here = (
                f"images/made/{path.replace('/', '-')}" if not path.startswith("docs/") else path.removeprefix("docs/")
            )
            if not path.startswith("docs/"):
                (DOCS / here).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(ROOT / path, DOCS / here)
            return f"![{label}]({os.path.relpath(here, Path(page).parent)})"
        found = MOUNTED.get(path) or MOUNTED.get(f"{path}/README.md") or OTHER.get(path)
        if found is None and path.startswith("docs/") and (ROOT / path).suffix == ".md":
            found = path.removeprefix("docs/")
        if found is None:
            return label if "`" in label else f"`{path}`" if label == Path(target).name else f"{label} (`{path}`)"
        return f"[{label}]({os.path.relpath(found, Path(page).parent)}{anchor or ''})"

    pieces = re.split(r"(^```.*?^```$)", text, flags=re.DOTALL | re.MULTILINE)
    return "".join(piece if piece.startswith("```") else LINK.sub(link, piece) for piece in pieces)


def read(app, docname, content):
    """Before a page of docs/ is parsed."""
    page = f"{docname}.md"
    if (DOCS / page).is_file() and page not in MOUNTED.values():
        content[0] = relinked(content[0], f"docs/{page}", page)


def stay_offline(app, exception):
    """The finished site must fetch nothing: scripts, styles, fonts and pictures are all its own."""
    if exception is not None or app.builder.format != "html":
        return
    fetched = re.compile(r"<(?:script|img|link|iframe|source)[^>]* (?:src|href)=\"((?:https?:)?//[^\"]+)")
    found = {(url, p.name) for p in Path(app.outdir).rglob("*.html") for url in fetched.findall(p.read_text())}
    if found:
        raise ExtensionError(f"the site would fetch {sorted(found)[:5]}")


def setup(app):
    """Make the pages, and point the links of the written ones at them."""
    write_api(DOCS / "api")
    for source, page in MOUNTED.items():
        if (ROOT / source).is_file():
            write(DOCS / page, relinked((ROOT / source).read_text(), source, page))
    app.connect("source-read", read)
    app.connect("build-finished", stay_offline)
    return {"parallel_read_safe": True}
