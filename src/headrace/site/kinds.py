"""Kinds of values that only the configuration of a site has; the common ones are in toml/kinds.py.

A file with secrets must exist, be readable and have the expected form. Its content is checked here, and neither kept
nor shown.

Not here: whether values go together (contradictions.py).
"""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from headrace.errors import FabricError, OptionError
from headrace.link.endpoint import LOCAL, check_endpoint
from headrace.link.rights import EVERYBODY
from headrace.link.users import read_users
from headrace.log.config import check_age, check_size
from headrace.product.put import check_origin
from headrace.selection.pattern import canonical_pattern
from headrace.timing.clock.terms import check_server
from headrace.toml.kinds import Kind, Listed, bytes_of, path_kind, readable, seconds_of, text_of
from headrace.units import exact_age, exact_size

# --- names ----------------------------------------------------------------------------------------


def _site_name(value: Any, folder: Path) -> str:
    try:
        return check_origin(text_of(value, "site1"))
    except OptionError as error:
        raise OptionError(error.problem.removeprefix("origin "), error.hint) from None


def _principal(value: Any, folder: Path) -> str:
    """The name of a certificate or a user, to which rights can be given."""
    return EVERYBODY if value == EVERYBODY else _site_name(value, folder)


SITE_NAME = Kind("site name", _site_name)
SITE_NAMES = Listed("list of site names", SITE_NAME)
STATIONS = Listed("list of stations, and CHANNEL/GROUP", Kind("name", lambda value, _: text_of(value, "decode")))
WHO = Listed('list of names, or `"*"`', Kind("name", _principal), alone=EVERYBODY)


# --- the queue ------------------------------------------------------------------------------------


def _queue_age(value: Any, folder: Path) -> float | None:
    return check_age(seconds_of(value, "1h"))


def _size(value: Any, folder: Path) -> int:
    return check_size(bytes_of(value, "2GiB"))


def _rate(value: Any, folder: Path) -> float:
    rate = float(bytes_of(value, "1GB"))
    if not rate:
        raise OptionError(f"{value!r} is out of range", 'give a size above 0, such as "1GB"')
    return rate


def _rate_text(rate: float) -> str:
    return exact_size(int(rate))


SIZE = Kind("size", _size, exact_size)
RATE = Kind("size", _rate, _rate_text)  # per second
QUEUE_AGE = Kind("age", _queue_age, exact_age)


# --- feeds and endpoints --------------------------------------------------------------------------


def _pattern(value: Any, folder: Path) -> str:
    pattern = canonical_pattern(text_of(value, "wx/radar/**"))
    return "**" if pattern is None else pattern.text


def _endpoint(value: Any, folder: Path) -> str:
    return check_endpoint(text_of(value, "tcp/upstream.example.org:7447"))


def _listening(value: Any, folder: Path) -> str:
    """An endpoint, or the word for the Unix socket in the queue's directory."""
    return LOCAL if value == LOCAL else check_endpoint(text_of(value, LOCAL), listen=True)


def _time_server(value: Any, folder: Path) -> str:
    return check_server(text_of(value, "ntp1.example.org"))


ENDPOINTS = Listed("list of endpoints", Kind("endpoint", _endpoint))
LISTENING = Listed(f'list of endpoints, or `"{LOCAL}"`', Kind("endpoint", _listening))
TIME_SERVERS = Listed("list of servers", Kind("server", _time_server))
PATTERNS = Listed("list of feed patterns", Kind("feed pattern", _pattern))


# --- files with secrets ---------------------------------------------------------------------------


def _dictionary(value: Any, folder: Path) -> Path:
    path = readable(value, folder)
    try:
        read_users(path)
    except FabricError as error:
        raise OptionError(error.problem, error.hint) from None
    return path


DICTIONARY_FILE = path_kind(_dictionary)


# --- keys -----------------------------------------------------------------------------------------


def _public_key(value: Any, folder: Path) -> str:
    from headrace.relay.signing.keyring import parse_public  # loads cryptography

    text = text_of(value, "RmFrZSBrZXksIDMyIGJ5dGVzIGluIGJhc2U2NCA8MzI=")
    parse_public(text)
    return text


def _checked(check: Callable[[ModuleType, Path], object]) -> Kind:
    """A file that must have a key, or ids of keys."""

    def read(value: Any, folder: Path) -> Path:
        from headrace.relay.signing import keyring  # as above

        path = readable(value, folder)
        try:
            check(keyring, path)
        except FabricError as error:
            raise OptionError(error.problem, error.hint) from None
        return path

    return path_kind(read)


PUBLIC_KEY = Kind("public key", _public_key)
SIGN_KEY = _checked(lambda keyring, path: keyring.read_private(path))
PUBLIC_FILE = _checked(lambda keyring, path: keyring.read_public(path))
REVOKED_FILE = _checked(lambda keyring, path: keyring.read_revoked(path))
