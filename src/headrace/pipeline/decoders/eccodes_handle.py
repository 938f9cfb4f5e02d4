"""A handle of ecCodes that is released, and its keys, which may be missing. For grib.py and bufr.py.

Imported in child processes only (child_process.py), where ecCodes runs.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import eccodes

MISSING_LONG = 2_147_483_647
MISSING_DOUBLE = -1e100


@contextmanager
def opened(message: bytes) -> Iterator[int]:
    handle = eccodes.codes_new_from_message(message)
    try:
        yield handle
    finally:
        eccodes.codes_release(handle)


def text(handle: int, key: str) -> str | None:
    """The text of a key; None also if ecCodes has no name for the value."""
    value = _get(handle, key, str)
    return None if value in (None, "", "unknown", "MISSING") else str(value)


def whole(handle: int, key: str) -> int | None:
    value = _get(handle, key, int)
    return None if value is None or abs(value) >= MISSING_LONG else int(value)


def number(handle: int, key: str) -> float | None:
    value = _get(handle, key, float)
    return None if value is None or value in (MISSING_DOUBLE, MISSING_LONG) else float(value)


def moment(handle: int, *keys: str) -> datetime | None:
    """The time in six keys, year first."""
    parts = [part for key in keys if (part := whole(handle, key)) is not None]
    try:
        year, month, day, hour, minute, second = parts
        return datetime(year, month, day, hour, minute, second, tzinfo=UTC)
    except ValueError:
        return None


def _get(handle: int, key: str, kind: type) -> Any:
    try:
        return eccodes.codes_get(handle, key, kind)
    except eccodes.CodesInternalError:
        return None
