"""What the API reference does to docstrings: bars are bars, and the comments of a dataclass describe its fields."""

import ast
import dataclasses
import inspect
import re
import textwrap


def plain_bars(lines):
    """|A x - y| is a norm in our docstrings; reStructuredText would look for a substitution of that name."""
    for i, line in enumerate(lines):
        parts = re.split(r"(``.*?``)", line)
        lines[i] = "".join(part if part.startswith("``") else part.replace("|", r"\|") for part in parts)


def field_comments(cls):
    """The fields of a dataclass and what the comments behind or above them say."""
    try:
        source = textwrap.dedent(inspect.getsource(cls))
    except (OSError, TypeError):
        return {}
    rows, found = source.splitlines(), {}
    for node in ast.parse(source).body[0].body:
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
            continue
        block = rows[node.lineno - 1 : node.end_lineno]
        said = [row.partition("  # ")[2] for row in block if "  # " in row]
        above = node.lineno - 2
        while not said and above >= 0 and rows[above].strip().startswith("# "):
            said.insert(0, rows[above].strip()[2:])
            above -= 1
            if above >= 0 and not rows[above].strip().startswith("# "):
                break
        default = "" if node.value is None else ast.unparse(node.value)
        simple = default if len(default) < 30 and "field(" not in default else ""
        found[node.target.id] = (" ".join(said), simple)
    return found


def process(app, what, name, obj, options, lines):
    """Called by autodoc for every docstring, before napoleon."""
    if what == "class" and dataclasses.is_dataclass(obj) and "Attributes" not in lines:
        fields = field_comments(obj)
        if fields:
            lines += ["", "Attributes", "----------"]
            for field, (said, default) in fields.items():
                default = f"(default ``{default}``)" if default else ""
                lines += [field, f"    {said} {default}".rstrip() or "    \\"]
            lines.append("")
    plain_bars(lines)


def setup(app):
    """Register the hook."""
    app.connect("autodoc-process-docstring", process, priority=100)
    return {"parallel_read_safe": True}
