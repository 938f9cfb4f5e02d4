"""Known: where to look for a site of which only the name is given.

    HEADRACE_SITES       endpoints, with commas between them; `local`, also if the variable is not set, stands for the
                         sockets of sites on this machine that accept this user (local.py)
    saved contexts       endpoints, each with its own credentials
    `through`            endpoints that a program names; then the others are not looked at

A site behind one of them counts, so one endpoint of a fabric is enough to find all of its sites. Multicast adds what
answers (scouting.py).
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headrace.errors import OptionError
from headrace.link.address import is_remote, parse_address
from headrace.link.contexts import read_contexts
from headrace.link.endpoint import LOCAL, check_endpoint
from headrace.link.local import local_endpoints
from headrace.link.login import Login

VARIABLE = "HEADRACE_SITES"
HERE = "this machine"  # the source of sockets
CANDIDATES_MAX = 64


@dataclass(frozen=True, slots=True)
class Candidate:
    """Through which a site may be reached: an endpoint, or all endpoints of one session."""

    endpoints: tuple[str, ...]
    source: str  # how it is known
    login: Login | None = None  # of its context; None: that of the caller

    def __str__(self) -> str:
        return f"{' or '.join(self.endpoints)} ({self.source})"


def known_candidates(through: str | Sequence[str] | None = None) -> list[Candidate]:
    """The first CANDIDATES_MAX of them, without repetition; OptionError names what is invalid."""
    if through is not None:
        given = (through,) if isinstance(through, str) else tuple(through)
        found = [Candidate((check_endpoint(text),), "through") for text in given]
        if not found:
            raise OptionError("through has no endpoint", "give one, such as tcp/host:7447, or leave it out")
    else:
        found = [*_of_environment(os.environ), *_of_contexts()]
    by_meaning = {(each.endpoints, each.login): each for each in reversed(found)}
    return list(reversed(by_meaning.values()))[:CANDIDATES_MAX]


def looks_here(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether sockets of this machine count, also of sites that are yet to start."""
    return LOCAL in _parts(environment)


def _of_environment(environment: Mapping[str, str]) -> list[Candidate]:
    found = []
    for part in _parts(environment):
        if part == LOCAL:
            found += [Candidate((endpoint,), HERE) for endpoint in local_endpoints()]
        else:
            found.append(Candidate((_checked(part),), VARIABLE))
    return found


def _parts(environment: Mapping[str, str]) -> list[str]:
    return [part.strip() for part in environment.get(VARIABLE, LOCAL).split(",") if part.strip()]


def _checked(text: str) -> str:
    try:
        return check_endpoint(text)
    except OptionError as error:
        raise OptionError(f"{VARIABLE}: {error.problem}", error.hint) from None


def _of_contexts() -> list[Candidate]:
    contexts = read_contexts().contexts
    found = []
    for name, each in sorted(contexts.items()):
        try:
            endpoint = parse_address(each.where).endpoint if is_remote(each.where) else None
        except OptionError as error:
            raise OptionError(f"context {name}: {error.problem}", error.hint) from None
        if endpoint is not None:
            found.append(Candidate((endpoint,), f"context {name}", each.login()))
    return found
