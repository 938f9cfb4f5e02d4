"""Functions of users that selections name: `Selection("wx/**", function="strong_wind")`.

A Python function exists in one process, so a selection that contains one cannot be sent or saved. A selection that
names one can: it has a text, `wx/** function strong_wind`. The process that evaluates it must know the name, from the
table [functions] of a site (site/functions.py) or from `Queue.open(path, functions=…)`. Elsewhere it is refused; no
product is ever selected or skipped because a name is unknown.

Channels name functions here too, for slices (channel/assigner.py). What follows is about selections.

A function takes a product and returns True or False. A product for which it raises, or returns something else, is not
selected, so that a faulty function stops nobody else; failures are counted, and the first one is logged. A function
only narrows a selection: it sees no product that the other clauses, or the rights of a client, keep out.
"""

import inspect
import logging
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NoReturn

import numpy as np

from headrace.errors import OptionError, SelectionError
from headrace.product.product import Product

Function = Callable[[Any], Any]  # of a product, for a selection; of many, for the slices of a channel

NAME_MAX = 64
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_log = logging.getLogger("headrace.selection")


def check_function_name(name: str) -> str:
    """Return the name if a function may be registered under it; SelectionError otherwise."""
    if len(name) > NAME_MAX or not _NAME.fullmatch(name):
        raise SelectionError(
            f"{name[:80]!r} is not the name of a function",
            f"use up to {NAME_MAX} letters, digits, dots, dashes and underscores, and begin with a letter",
        )
    return name


class Guarded:
    """A user's function that decides about products, and the number of its failures.

    A product for which the function raises is not selected, so that a faulty function stops nobody else. The first
    exception is logged with its traceback; all are counted.
    """

    __slots__ = ("failures", "function", "latest")

    def __init__(self, function: Function) -> None:
        if not callable(function):
            raise SelectionError(f"function {function!r} is not callable", "give a function of a product, or its name")
        self.function = function
        self.failures = 0
        self.latest = ""  # failure

    def test(self, product: Product) -> bool:
        try:
            return self._decide(product)
        except Exception as error:  # noqa: BLE001 - it is the user's code
            self.failures += 1
            self.latest = f"{type(error).__name__}: {error}"
            if self.failures == 1:
                _log.exception("the function %r of a selection failed; its product is not selected", self.function)
            return False

    def _decide(self, product: Product) -> bool:
        return bool(self.function(product))


class Registered(Guarded):
    """A function that selections name. It must return True or False: None is a forgotten `return`."""

    __slots__ = ()

    def _decide(self, product: Product) -> bool:
        outcome = self.function(product)
        if not isinstance(outcome, bool | np.bool_):
            raise TypeError(f"it returned {outcome!r:.80}, and neither True nor False")
        return bool(outcome)


class Named:
    """The name of a function in a selection that no process has bound yet; it decides nothing."""

    __slots__ = ("_name",)
    failures = 0

    def __init__(self, name: str) -> None:
        self._name = check_function_name(name)

    def test(self, product: Product) -> NoReturn:
        raise unknown_function(self._name, ())


class Functions:
    """The functions that one process knows by name."""

    def __init__(self, functions: Mapping[str, Function] | None = None) -> None:
        self._known = {
            check_function_name(name): Registered(check_function(name, function))
            for name, function in (functions or {}).items()
        }

    def __contains__(self, name: object) -> bool:
        return name in self._known

    def get(self, name: str) -> Registered:
        """The function of that name; SelectionError if this process has none."""
        found = self._known.get(name)
        if found is None:
            raise unknown_function(name, self._known)
        return found

    def failures(self) -> dict[str, tuple[int, str]]:
        """How often each function has failed, if it has, and how it failed the last time."""
        return {name: (each.failures, each.latest) for name, each in self._known.items() if each.failures}


def check_function(name: str, function: Any) -> Function:
    """Return the function if it can be called with one product; OptionError otherwise."""
    if not callable(function):
        raise OptionError(f"function {name!r} is a {type(function).__name__}, not a function", "give a function")
    if inspect.iscoroutinefunction(function):
        raise OptionError(f"function {name!r} is asynchronous", "write it with def, and without await")
    try:
        inspect.signature(function).bind(None)
    except TypeError:
        raise OptionError(f"function {name!r} does not take one product", "write def name(product): …") from None
    except ValueError:  # a function in C does not say what it takes
        pass
    return function  # type: ignore[no-any-return]


def unknown_function(name: str, known: Iterable[str]) -> SelectionError:
    names = ", ".join(sorted(known))
    return SelectionError(
        f"there is no function {name!r} here" + (f"; there is {names}" if names else ""),
        "register it in [functions] of the site and use the endpoint of the site; "
        "or pass it to the process: Queue.open(path, functions={name: function})",
    )
