"""Failures: errors on their way from a site to its user, who sees the same class with the same words.

Both ends use this file. A class that the client does not know, because the site is newer, and an error that is not
Headrace's own become a FabricError.
"""

from typing import Any

from headrace import errors
from headrace.errors import FabricError, HeadraceError, ProductDamagedError
from headrace.remote.protocol.answers import Failure

_ATTRIBUTES = {  # arguments of a class beside problem and hint
    "SelectionError": ("column", "excerpt"),
    "TermsError": ("conflicts",),
    "ConfigError": ("complaints",),
    "ProductDamagedError": ("sequence",),
    "RecordsDamagedError": ("offset",),
}
_NEXT = "next"


def failure_of(error: Exception) -> Failure:
    """An error as it travels."""
    if not isinstance(error, HeadraceError):
        return Failure("FabricError", f"the site failed: {type(error).__name__}: {error}", "look into the site's log")
    name = type(error).__name__
    details = {attribute: _plain(getattr(error, attribute)) for attribute in _ATTRIBUTES.get(name, ())}
    if isinstance(error, ProductDamagedError):
        details[_NEXT] = error.next
    return Failure(name, error.problem, error.hint, details)


def _plain(value: Any) -> Any:
    return [str(each) for each in value] if isinstance(value, tuple) else value


def error_of(failure: Failure) -> HeadraceError:
    """The error again."""
    kind = getattr(errors, failure.error, None)
    if not isinstance(kind, type) or not issubclass(kind, HeadraceError):
        return FabricError(f"{failure.error} at the site: {failure.problem}", failure.hint)
    details = dict(failure.details)
    behind = details.pop(_NEXT, None)
    arguments = {name: tuple(value) if isinstance(value, list) else value for name, value in details.items()}
    try:
        error = kind(failure.problem, failure.hint, **arguments)
    except TypeError:  # an argument that this version does not know
        return FabricError(f"{failure.error} at the site: {failure.problem}", failure.hint)
    if isinstance(error, ProductDamagedError) and isinstance(behind, int):
        error.next = behind
    return error
