"""Users files: secrets in place of passwords, and files of earlier versions."""

import os
import stat
from pathlib import Path

import pytest

from headrace.errors import OptionError
from headrace.link.credentials import UserTerms
from headrace.link.passwords import check_new_password, is_secret, secret_of
from headrace.link.users import changed_users, dictionary, in_clear, read_users


def test_a_secret_depends_on_the_name_and_the_password_only() -> None:
    secret = secret_of("ada", "open sesame")
    assert is_secret(secret)
    assert secret == UserTerms("ada", "open sesame").secret == secret_of("ada", secret)
    assert len({secret, secret_of("bob", "open sesame"), secret_of("ada", "open sesamf")}) == 3
    assert "sesame" not in secret


def test_zenoh_reads_secrets_from_a_file_that_has_no_name(tmp_path: Path) -> None:
    (tmp_path / "users").write_text(f"ada:open sesame\nbob:{secret_of('bob', 'other words')}\n")
    with dictionary(tmp_path / "users") as file:
        assert file is not None
        assert file.read_text() == f"ada:{secret_of('ada', 'open sesame')}\nbob:{secret_of('bob', 'other words')}\n"
        assert os.stat(file).st_nlink == 0
    assert not file.exists()
    assert os.listdir(tmp_path) == ["users"]


def test_a_file_with_passwords_in_clear_is_told_from_one_with_secrets(tmp_path: Path) -> None:
    (tmp_path / "users").write_text(f"ada:open sesame\nbob:{secret_of('bob', 'x')}\ncid:scrypt$1$short\n")
    assert in_clear(read_users(tmp_path / "users")) == ["ada", "cid"]


def test_a_change_is_readable_for_the_owner_only_and_leaves_nothing_behind(tmp_path: Path) -> None:
    path = tmp_path / "users"
    path.write_text("ada:1\n")
    path.chmod(0o644)
    with changed_users(path) as users:
        users["bob"] = "2"
    assert path.read_text() == "ada:1\nbob:2\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == ["users"]


def test_a_change_that_fails_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "users"
    path.write_text("ada:1\n")
    with pytest.raises(ZeroDivisionError), changed_users(path) as users:
        users.clear()
        1 / 0
    assert path.read_text() == "ada:1\n"


def test_a_short_password_is_not_chosen() -> None:
    assert check_new_password("12345678") == "12345678"
    with pytest.raises(OptionError, match="the password has 7 characters"):
        check_new_password("1234567")
