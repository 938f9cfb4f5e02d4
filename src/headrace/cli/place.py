"""Place: the queue that a word on the command line names.

    wx.queue   ./lab            a directory
    tcp/host:7447               the endpoint of a site; credentials come from the environment
    site:denver                 the site of that name, looked for at known endpoints and by multicast
    @lab                        the context `lab`
    lab                         the context `lab`; refused if something of that name is in the directory: write @lab or
                                ./lab
    @                           the default: $HEADRACE_QUEUE, which holds any of the words above, or else the context
                                that `headrace context use` has chosen

A command whose QUEUE is left out uses the default (group.py). Guessing between a directory and a context could put
products into the wrong queue, so it is never done.
"""

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.cli.contexts import get_context
from headrace.cli.failure import tell
from headrace.errors import OptionError
from headrace.link.address import SITE, is_remote
from headrace.link.contexts import NAME, Contexts, contexts_path, read_contexts

if TYPE_CHECKING:
    from headrace.link.credentials import TlsTerms, UserTerms
    from headrace.link.login import Login

DEFAULT = "@"
VARIABLE = "HEADRACE_QUEUE"


@dataclass(frozen=True, slots=True)
class Place:
    """A queue: its directory, or the address of its site; and the context that named it."""

    where: str
    context: str | None = None
    login: "Login | None" = None  # of the context

    @property
    def is_remote(self) -> bool:
        return is_remote(self.where)

    def credentials(self) -> "tuple[TlsTerms | None, UserTerms | None]":
        """For a site: what the context names, or else the environment. A directory needs none."""
        if not self.is_remote:
            return None, None
        from headrace.link.login import Login

        login = self.login or Login.from_environment()
        tell(f"{self.where}: logs in {_shown(login)}")
        return login.read()


def _shown(login: "Login") -> str:
    given = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in login.given().items())
    return f"with {given}" if given else "without a user and without a certificate"


def has_default() -> bool:
    """Whether a command may leave out its queue."""
    return bool(os.environ.get(VARIABLE)) or read_contexts().default is not None


def find_place(word: str) -> Place:
    """The queue that a word names. OptionError: an unknown context, an ambiguous word, an address without protocol."""
    if word == DEFAULT:
        return _default()
    if word.startswith(DEFAULT):
        return _of_context(read_contexts(), word.removeprefix(DEFAULT))
    if NAME.fullmatch(word):
        contexts = read_contexts()
        if word in contexts.contexts:
            if os.path.lexists(word):
                raise OptionError(
                    f"{word!r} is a context, and also a path in this directory", f"write @{word} or ./{word}"
                )
            return _of_context(contexts, word)
    from headrace.remote.client.connect import check_not_address

    if not is_remote(word):
        check_not_address(word)
        tell(f"the queue is the directory {os.path.abspath(word)}")
    else:
        tell(f"the queue is that of {word}" if word.startswith(SITE) else f"the queue is at the endpoint {word}")
    return Place(word)


def _default() -> Place:
    word = os.environ.get(VARIABLE, "")
    if word and word != DEFAULT:
        tell(f"the queue is {word}, from {VARIABLE}")
        return find_place(word)
    contexts = read_contexts()
    if contexts.default is None:
        raise OptionError(
            "there is no default queue", f"set {VARIABLE}, or choose a context: headrace context use NAME"
        )
    return _of_context(contexts, contexts.default)


def _of_context(contexts: Contexts, name: str) -> Place:
    found = get_context(contexts, name)
    tell(f"the queue is {found.where}, from the context {name} in {contexts_path()}")
    return Place(found.where, name, found.login())
