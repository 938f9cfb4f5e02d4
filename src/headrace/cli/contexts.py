"""Contexts, as `headrace context` changes them; `link/contexts.py` reads them and says what they are.

The file belongs to its user (mode 0600, in a directory of mode 0700), and is replaced as a whole, under a lock, so that
two commands do not undo each other.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from headrace.cli.failure import did_you_mean
from headrace.errors import OptionError
from headrace.link.contexts import NAME, Context, Contexts, contexts_path, read_contexts

CONTEXTS_MAX = 1000


def get_context(contexts: Contexts, name: str) -> Context:
    """The context of that name; OptionError lists those that exist."""
    found = contexts.contexts.get(name)
    if found is None:
        known = ", ".join(sorted(contexts.contexts))
        hint = f"the contexts are: {known}" if known else "create it with: headrace context create"
        raise OptionError(f"there is no context {name!r}{did_you_mean(name, contexts.contexts)}", hint)
    return found


@contextmanager
def changed_contexts() -> Iterator[list[Contexts]]:
    """`with changed_contexts() as kept:` change `kept[0]`; it is written at the end, unless the block raises."""
    from headrace.log.documents import replace_file

    path = contexts_path()
    if not path.is_absolute():
        raise OptionError("this user has no home directory for contexts", "set XDG_CONFIG_HOME to an absolute path")
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        before = read_contexts()
        kept = [before]
        yield kept
        if kept[0] != before:
            replace_file(path, msgspec.json.format(msgspec.json.encode(kept[0])), None, mode=0o600)
    finally:
        os.close(folder)


def check_name(name: str) -> str:
    """The name of a context; OptionError if it could be a path."""
    if not NAME.fullmatch(name):
        raise OptionError(f"{name!r} is not the name of a context", "use 1 to 64 letters, digits, - and _")
    return name
