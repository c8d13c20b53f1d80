"""YAML that people write: bounded in size and depth before anything is built from it, and no key given twice.

A few hundred characters of nested anchors stand for billions of values, and a few thousand brackets exhaust Python's
stack. So a file is measured while it is parsed, with every alias counted as what it stands for.
"""

from __future__ import annotations

from typing import Any

import yaml

# Far more than any settings need, and read within a second or two.
MOST_CHARACTERS, MOST_VALUES, DEEPEST = 100_000, 10_000, 30
LONGEST_TEXT, LONGEST_NUMBER = 4096, 40  # the first is that of a path


def read_yaml(text: str) -> Any:
    """Read settings, YAML or JSON, as `yaml.safe_load` does, and refuse what it would take without a word or an end.

    A ValueError refuses repeated keys (of which YAML takes the last), values that contain themselves, and what is
    beyond the bounds above: of the whole text, its values, its levels, one value, and one number.
    """
    if len(text) > MOST_CHARACTERS:
        raise ValueError(f"longer than {MOST_CHARACTERS:,} characters: settings are shorter")
    return yaml.load(text, Loader=_Bounded)  # a safe loader, too


class _Bounded(yaml.SafeLoader):
    """The safe loader, which counts levels and values while it goes through the text."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._depth = self._count = 0
        self._counts: dict[int, int] = {}  # how many values a node stands for, by its identity

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node:
        """Compose one node and those in it; count them, and what an alias stands for as often as it is used."""
        self._depth += 1
        if self._depth > DEEPEST:
            self._refuse(f"more than {DEEPEST} levels of brackets or indentation")
        before, alias = self._count, self.check_event(yaml.AliasEvent)
        node = super().compose_node(parent, index)
        assert node is not None
        if alias and id(node) not in self._counts:
            self._refuse("an alias inside of what it stands for")
        self._count += self._counts[id(node)] if alias else 1
        if self._count > MOST_VALUES:
            self._refuse(f"more than {MOST_VALUES:,} values, aliases counted as what they stand for")
        self._counts[id(node)] = self._count - before
        self._depth -= 1
        if isinstance(node, yaml.ScalarNode) and len(node.value) > LONGEST_TEXT:
            self._refuse(f"a value of more than {LONGEST_TEXT:,} characters")
        if node.tag in ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float") and len(node.value) > LONGEST_NUMBER:
            self._refuse(f"a number of more than {LONGEST_NUMBER} digits")
        return node

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        """Compose a mapping; refuse a key that is given twice."""
        node = super().compose_mapping_node(anchor)
        lines: dict[tuple[str, str], int] = {}
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                name, line = (key.tag, key.value), key.start_mark.line + 1
                if name in lines:
                    where = f"in line {line}" if line == lines[name] else f"in lines {lines[name]} and {line}"
                    raise ValueError(f"{key.value!r} is given twice, {where}: keep one of them")
                lines[name] = line
        return node

    def _refuse(self, what: str) -> None:
        raise ValueError(f"{what}, near line {self.line + 1}: settings do not need that")
