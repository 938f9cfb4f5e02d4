"""Logins: names of files from options or the environment; secrets are read only by the process that connects."""

import pickle
from pathlib import Path

import pytest

from headrace.errors import FabricError, OptionError
from headrace.link.login import Login

NAMES = {field: f"option {field}" for field in ("user", "password_file", "authority", "certificate", "key")}


@pytest.fixture
def password_file(tmp_path: Path) -> Path:
    (tmp_path / "password").write_text("deep-secret\n")
    return tmp_path / "password"


def test_a_login_holds_no_secret_and_reads_it_where_it_is_used(password_file: Path) -> None:
    login = Login.of({"user": "ann", "password_file": str(password_file), "authority": "ca.crt"}, NAMES)
    assert "deep-secret" not in repr(login) + str(login.given())
    assert b"deep-secret" not in pickle.dumps(login)
    tls, user = login.read()
    assert user is not None
    assert (user.name, user.password, "deep-secret" in repr(user)) == ("ann", "deep-secret", False)
    assert tls is not None
    assert (tls.authority, tls.certificate) == (Path.cwd() / "ca.crt", None)


def test_the_environment_names_the_same_files(password_file: Path) -> None:
    environment = {"HEADRACE_USER": "ann", "HEADRACE_PASSWORD_FILE": str(password_file), "HEADRACE_KEY": ""}
    assert Login.from_environment(environment) == Login("ann", str(password_file))
    assert Login.from_environment({}).read() == (None, None)


@pytest.mark.parametrize(
    ("given", "missing"),
    [("user", "password_file"), ("password_file", "user"), ("certificate", "key"), ("key", "certificate")],
)
def test_half_a_login_names_the_other_half(given: str, missing: str) -> None:
    with pytest.raises(OptionError, match=f"option {given} is set without option {missing}; set option {missing}"):
        Login.of({given: "x"}, NAMES)


def test_a_certificate_without_an_authority_is_refused() -> None:
    with pytest.raises(OptionError, match="without option authority"):
        Login.of({"certificate": "c", "key": "k"}, NAMES)


def test_a_machine_without_the_password_file_gets_an_error_with_its_path(tmp_path: Path) -> None:
    login = Login("ann", str(tmp_path / "password"))
    with pytest.raises(FabricError, match=f"{tmp_path}/password is not readable.*every machine"):
        login.read()
