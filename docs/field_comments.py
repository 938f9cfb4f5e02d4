"""The comment beside a field of a class is its description in the API reference: an extension of Griffe."""

from typing import Any

import griffe


class FieldComments(griffe.Extension):
    def on_attribute_instance(self, *, attr: griffe.Attribute, **_: Any) -> None:
        if attr.docstring is None and attr.lineno and attr.parent is not None and attr.parent.is_class:
            line = attr.lines_collection[attr.filepath][attr.lineno - 1]  # type: ignore[index]
            _, sign, comment = line.partition("  # ")
            if sign and not comment.startswith(("type:", "noqa", "fmt:")):
                attr.docstring = griffe.Docstring(comment[:1].upper() + comment[1:] + ".", parent=attr)
