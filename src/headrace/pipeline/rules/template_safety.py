"""Safe templates: how values are escaped for the purpose of a template, and which results are valid.

A value comes from a product, and so from a stranger. It must not lead a path out of its folder, add a level to a feed,
or become an option of a program:

    path       `/`, `%` and control characters of a value are escaped as %2F, %25 …; then no part of the path may be
               empty, `.` or `..`, the path must be relative, and each part must fit the limit for file names
    feed       characters that a level of a feed must not have are escaped; the result must be a valid feed
    ident      unchanged, with a limit on its length
    argument   unchanged; no NUL, and no `-` at the beginning unless the template itself begins with it
    text       unchanged

Fields that are paths themselves, `{feed}` and `{…:path}`, keep their `/`. A template is checked when rules are loaded,
with letters for its fields, and every result is checked again.
"""

import re
from collections.abc import Callable
from typing import Literal

from headrace.errors import FeedError, RuleError
from headrace.product.feed import check_feed
from headrace.product.product import IDENT_BYTES_MAX

Purpose = Literal["path", "feed", "ident", "argument", "text"]
NAME_BYTES_MAX = 255
PATH_BYTES_MAX = 4000
TEXT_BYTES_MAX = 65536
_UNSAFE = {
    "path": re.compile(r"[%\x00-\x1f\x7f/]"),
    "feed": re.compile(r"[%\s/*?#$+>\"'\\\x00-\x1f\x7f]"),
}
_UNSAFE_BUT_SLASH = {purpose: re.compile(pattern.pattern.replace("/", "", 1)) for purpose, pattern in _UNSAFE.items()}


def safe(value: str, purpose: Purpose, keeps_slashes: bool) -> str:
    """The value, escaped for this purpose."""
    unsafe = (_UNSAFE_BUT_SLASH if keeps_slashes else _UNSAFE).get(purpose)
    return value if unsafe is None else unsafe.sub(_escaped, value)


def _escaped(found: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in found[0].encode())


def check_result(text: str, purpose: Purpose, begins_with_value: bool = False) -> None:
    """RuleError: the text is invalid for its purpose."""
    _CHECKS[purpose](text)
    if purpose == "argument" and begins_with_value and text.startswith("-"):
        raise RuleError(f"the argument {text[:80]!r} would be an option", "write something before the field: ./{ident}")


def _check_path(text: str) -> None:
    if not text:
        raise RuleError("the path is empty", "name a file")
    if text.startswith("/"):
        raise RuleError(f"the path {text[:80]!r} is absolute", "write a relative path, and give folder")
    if "\0" in text:
        raise RuleError("the path has a NUL character", "leave it out")
    for name in text.split("/"):
        if name in ("", ".", ".."):
            what = f"the part {name!r}" if name else "an empty part"
            hint = "write folders and a file name, separated by single slashes"
            raise RuleError(f"the path {text[:80]!r} has {what}", hint)
        if len(name.encode()) > NAME_BYTES_MAX:
            raise RuleError(f"{name[:40]!r}… is too long for a file name", f"keep names within {NAME_BYTES_MAX} bytes")
    if len(text.encode()) > PATH_BYTES_MAX:
        raise RuleError(f"the path {text[:40]!r}… is too long", f"keep it within {PATH_BYTES_MAX} bytes")


def _check_feed(text: str) -> None:
    try:
        check_feed(text)
    except FeedError as error:
        raise RuleError(error.problem, error.hint) from None


def _check_ident(text: str) -> None:
    if len(text.encode()) > IDENT_BYTES_MAX:
        raise RuleError(f"the ident {text[:40]!r}… is too long", f"keep it within {IDENT_BYTES_MAX} bytes")


def _check_argument(text: str) -> None:
    if "\0" in text:
        raise RuleError("the argument has a NUL character", "leave it out")
    _check_text(text)


def _check_text(text: str) -> None:
    if len(text.encode()) > TEXT_BYTES_MAX:
        raise RuleError(f"the text {text[:40]!r}… is too long", f"keep it within {TEXT_BYTES_MAX:,} bytes")


_CHECKS: dict[str, Callable[[str], None]] = {
    "path": _check_path, "feed": _check_feed, "ident": _check_ident, "argument": _check_argument, "text": _check_text,
}  # fmt: skip
