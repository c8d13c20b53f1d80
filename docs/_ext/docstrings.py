"""What the API reference does to docstrings, which are written for people and not for reStructuredText.

Bars and stars are themselves, indented formulas stay as they are, and the comments of a dataclass describe its fields.
"""

import ast
import dataclasses
import inspect
import re
import textwrap


def plain_signs(lines):
    """|A x - y| is a norm and *shape an argument; reStructuredText would look for substitutions and emphasis."""
    for i, line in enumerate(lines):
        parts = re.split(r"(``.*?``)", line)
        lines[i] = "".join(part if part.startswith("``") else re.sub(r"(\||\*(?=\w))", r"\\\1", part) for part in parts)


def keep_formulas(lines):
    """Indented blocks between the paragraphs, before the first section, are formulas: literal, line by line."""
    out, literal = [], False
    sections = [i for i, line in enumerate(lines) if line and set(line) == {"-"}]
    end = sections[0] - 1 if sections else len(lines)
    for i, line in enumerate(lines[:end]):
        indented = line.startswith("    ")
        listed = any(earlier.lstrip()[:2] in ("* ", "- ") for earlier in lines[max(0, i - 3) : i])
        if indented and not literal and i > 0 and not lines[i - 1].strip() and not listed:
            out += ["::", ""]
            literal = True
        elif line.strip() and not indented:
            if literal and out and out[-1].strip():
                out.append("")
            literal = False
        out.append(line)
    marked = [(row, in_block) for row, in_block in zip(out, _blocks(out), strict=True)]
    texts = [row for row, in_block in marked if not in_block]
    plain_signs(texts)
    rest = lines[end:]
    plain_signs(rest)
    after = iter(texts)
    lines[:] = [row if in_block else next(after) for row, in_block in marked] + rest


def _blocks(rows):
    """Which rows lie in a literal block."""
    inside, found = False, []
    for row in rows:
        if row == "::":
            inside = True
            found.append(False)
            continue
        if inside and row.strip() and not row.startswith("    "):
            inside = False
        found.append(inside and bool(row.strip()))
    return found


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
        while above >= 0 and rows[above].strip().startswith("# "):
            above -= 1
        said_above = " ".join(row.strip()[2:] for row in rows[above + 1 : node.lineno - 1])
        if not said and said_above.endswith("."):  # a sentence; "# Data" is a heading
            said = [said_above]
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
    keep_formulas(lines)


def setup(app):
    """Register the hook."""
    app.connect("autodoc-process-docstring", process, priority=100)
    return {"parallel_read_safe": True}
