"""The one check for names that people choose: cursors, stations and channels.

A name is 1 to 120 bytes of printable UTF-8, so that it fits into a slot of the file `cursors` and onto one line of a
terminal. Stations and channels are also named in keys and on command lines; their names have no `/` and neither begin
nor end with a space.
"""

from headrace.errors import InvalidError

NAME_BYTES_MAX = 120


def check_name(name: str, kind: str, error: type[InvalidError], *, plain: bool = True) -> str:
    """Return `name` if a `kind` ("station", …) may have it, else raise `error`. `plain`: no `/` or outer spaces."""
    try:
        size = len(name.encode())
    except (AttributeError, UnicodeEncodeError):
        size = 0
    if 1 <= size <= NAME_BYTES_MAX and name.isprintable() and not (plain and ("/" in name or name != name.strip())):
        return name
    limits = f"use 1 to {NAME_BYTES_MAX} bytes of printable text"
    raise error(f"{kind} name {name!r} is invalid", f"{limits} without '/' and outer spaces" if plain else limits)
