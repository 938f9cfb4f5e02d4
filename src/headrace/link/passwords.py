"""Passwords: the secret that is derived from one, which is all that a link and a users file have of it.

    client                                                    site
    password ──scrypt, the user's name as salt──► secret      users file: alice:scrypt$1$…
                                                    └───────── Zenoh compares ──────────┘

Zenoh's handshake has no room for a salt, so the client must know it: it is the name of the user behind a fixed text.
Equal passwords of two users have different secrets, and a table of secrets holds for one user name only. The same name
and password have the same secret at every site.

The secret stands for the password at a site: a thief of a users file can log in as its users, there and where they
have the same name and password, until their passwords are changed. He learns no password, unless he guesses it: each
guess costs him 0.2 s of a core and 32 MiB. A password file of a client may have the secret instead of the password.

Not here: the users file (users.py), and how guesses at a running site are slowed down (lockout.py).
"""

import hashlib
import re
from base64 import urlsafe_b64encode
from functools import lru_cache

from headrace.errors import OptionError

PASSWORD_CHARS_MIN = 8  # of a new one
_MARK = "scrypt$1$"
_SALT = "headrace user 1\0"
_COST, _BLOCK, _PASSES, _BYTES = 1 << 15, 8, 3, 32
_MEMORY_MAX = 64 << 20
_SECRET = re.compile(r"scrypt\$1\$[A-Za-z0-9_-]{43}")


def is_secret(text: str) -> bool:
    return _SECRET.fullmatch(text) is not None


@lru_cache(maxsize=1024)
def secret_of(name: str, password: str) -> str:
    """The secret of a user; a text that is one already stays as it is. Takes 0.2 s at the first time."""
    if is_secret(password):
        return password
    key = hashlib.scrypt(
        password.encode(), salt=(_SALT + name).encode(), n=_COST, r=_BLOCK, p=_PASSES, maxmem=_MEMORY_MAX, dklen=_BYTES
    )
    return _MARK + urlsafe_b64encode(key).decode().rstrip("=")


def check_new_password(password: str) -> str:
    """OptionError if a password is too short to be chosen."""
    if len(password) < PASSWORD_CHARS_MIN:
        raise OptionError(
            f"the password has {len(password)} characters", f"use {PASSWORD_CHARS_MIN} or more, best some random words"
        )
    return password
