"""glibc's regcomp and regexec, which LDM uses: what a POSIX pattern means."""

import ctypes
from collections.abc import Callable

import pytest

REG_EXTENDED = 1
GROUPS_MAX = 10

Matcher = Callable[[str], list[str | None] | None]  # the match and its groups; None: no match


class _Range(ctypes.Structure):
    _fields_ = [("begin", ctypes.c_int), ("end", ctypes.c_int)]


def glibc() -> ctypes.CDLL:
    """The library of this process; skips the test where it is another one."""
    try:
        library = ctypes.CDLL("libc.so.6")
        _ = library.gnu_get_libc_version, library.regcomp
    except (OSError, AttributeError):
        pytest.skip("needs glibc")
    return library


def matcher(library: ctypes.CDLL, pattern: str) -> Matcher | None:
    """None: the pattern is refused. The memory of a pattern is not freed: tests have few."""
    regex = ctypes.create_string_buffer(512)  # regex_t has 64 bytes
    if library.regcomp(regex, pattern.encode(), REG_EXTENDED):
        return None

    def match(text: str) -> list[str | None] | None:
        found = (_Range * GROUPS_MAX)()
        if library.regexec(regex, text.encode(), ctypes.c_size_t(GROUPS_MAX), found, 0):
            return None
        return [text[each.begin : each.end] if each.begin >= 0 else None for each in found]

    return match
