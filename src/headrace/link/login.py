"""Login: which credentials to use, by the names of their files.

    options, a file, or the environment ──► Login (names of files) ──► TlsTerms, UserTerms (content)
                                            may be shown, stored, sent   stays in the process that connects

A login holds no secret, so it may stand in plans, logs and checkpoints, and it may be sent to other machines. Each
process reads the files when it connects; a machine that has no such file gets an error that names the file.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Self

from headrace.errors import FabricError, OptionError
from headrace.link.credentials import TlsTerms, UserTerms, secret_text
from headrace.toml.kinds import Kind, path_kind, readable, text_of

PASSWORD_BYTES_MAX = 4096
_VARIABLES = {
    "user": "HEADRACE_USER", "password_file": "HEADRACE_PASSWORD_FILE", "authority": "HEADRACE_AUTHORITY",
    "certificate": "HEADRACE_CERTIFICATE", "key": "HEADRACE_KEY",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Login:
    """A user, and paths of files. Each may be missing."""

    user: str | None = None
    password_file: str | None = None
    authority: str | None = None
    certificate: str | None = None
    key: str | None = None

    @classmethod
    def of(cls, given: Mapping[str, str | None], names: Mapping[str, str]) -> Self:
        """A login from values by field; relative paths are made absolute. OptionError uses these names of the fields.

        A value is required if another one has no effect without it.
        """
        for there, missing in (
            ("user", "password_file"), ("password_file", "user"), ("certificate", "key"), ("key", "certificate"),
            ("certificate", "authority"),
        ):  # fmt: skip
            if given.get(there) and not given.get(missing):
                raise OptionError(f"{names[there]} is set without {names[missing]}", f"set {names[missing]} as well")
        return cls(**{
            field: os.path.abspath(value) if field != "user" else value for field, value in given.items() if value
        })  # fmt: skip

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Self:
        return cls.of({field: environment.get(name) for field, name in _VARIABLES.items()}, _VARIABLES)

    def given(self) -> dict[str, str]:
        """The values that are set, by field."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {field: value for field, value in values.items() if value is not None}

    def read(self) -> tuple[TlsTerms | None, UserTerms | None]:
        """The credentials. FabricError: the password file is not readable here. Other files are read by `connect`."""
        return self._tls(), self._user()

    def _tls(self) -> TlsTerms | None:
        if self.authority is None:
            return None
        certificate, key = (Path(file) if file else None for file in (self.certificate, self.key))
        return TlsTerms(Path(self.authority), certificate, key)

    def _user(self) -> UserTerms | None:
        if self.user is None or self.password_file is None:
            return None
        if not os.path.exists(self.password_file):
            raise FabricError(
                f"the password file {self.password_file} is not readable: it does not exist",
                "check the path; every machine that connects to the site needs the file",
            )
        return UserTerms(self.user, secret_text(Path(self.password_file), "the password file").strip())


# --- keys of configuration files --------------------------------------------------------------------


def _password(value: Any, folder: Path) -> Path:
    path = readable(value, folder)
    try:
        is_short = path.stat().st_size <= PASSWORD_BYTES_MAX
        lines = secret_text(path, "the password file").splitlines() if is_short else []
    except FabricError as error:
        raise OptionError(error.problem, error.hint) from None
    if len(lines) != 1:
        raise OptionError(f"{path} is not one line of text", "a password file has one line, the password")
    UserTerms("this site", lines[0])
    return path


def _user(value: Any, folder: Path) -> str:
    return UserTerms(text_of(value, "site1"), "any").name


USER = Kind("text", _user)
PASSWORD_FILE = path_kind(_password)
