"""headrace users: who may connect with a password."""

from pathlib import Path

import pytest

from headrace.link.passwords import secret_of
from support.commandline import Run, objects


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "users"


def test_users_are_created_listed_and_deleted(run: Run, file: Path) -> None:
    assert run("users", "create", file, "ada", stdin="open sesame\n").stdout == "ada is created\n"
    assert run("users", "create", file, "bob", stdin="other words\n").stdout == "bob is created\n"
    assert run("users", "create", file, "bob", stdin="newer words\n").stdout == "the password of bob is changed\n"
    assert file.read_text() == f"ada:{secret_of('ada', 'open sesame')}\nbob:{secret_of('bob', 'newer words')}\n"
    assert run("users", "list", file).stdout == "ada\nbob\n"
    assert run("users", "delete", file, "ada").stdout == "ada is deleted\n"
    assert run("users", "list", file).stdout == "bob\n"


def test_programs_get_json(run: Run, file: Path) -> None:
    assert objects(run("users", "create", file, "ada", "--json", stdin="open sesame\n").stdout) == [
        {"created": "ada", "new": True, "users": 1}
    ]
    assert objects(run("users", "list", file, "--json").stdout) == [{"name": "ada", "in_clear": False}]
    assert objects(run("users", "check", file, "--json").stdout) == [{"file": str(file), "users": 1, "problems": []}]
    run("users", "create", file, "bob", stdin="other words\n")
    assert objects(run("users", "delete", file, "ada", "--json").stdout) == [{"deleted": "ada", "users": 1}]
    assert objects(run("users", "import", file, "--json").stdout) == [{"converted": [], "users": 1}]


def test_a_file_of_an_earlier_version_is_converted(run: Run, file: Path) -> None:
    file.write_text("ada:open sesame\nbob:x\n")
    checked = run("users", "check", file)
    assert checked.exit_code == 1
    assert f"{file}: the password of ada is in clear: headrace users import {file}\n" in checked.stdout
    assert "others can read or write it: chmod 600" in checked.stdout
    assert run("users", "list", file).stdout == "ada (password in clear)\nbob (password in clear)\n"
    assert run("users", "import", file).stdout == f"2 passwords of {file} converted\n"
    assert file.read_text() == f"ada:{secret_of('ada', 'open sesame')}\nbob:{secret_of('bob', 'x')}\n"
    assert run("users", "check", file).stdout == f"{file} is valid, with 2 users\n"


def test_a_file_that_a_site_would_refuse_is_a_negative_answer(run: Run, file: Path) -> None:
    file.write_text("ada:secret\nada:again\n")
    checked = run("users", "check", file)
    assert (checked.exit_code, "user ada is listed twice" in checked.stdout) == (1, True)
    file.chmod(0o644)
    checked = run("users", "check", file)
    assert (checked.exit_code, f"run: chmod 600 {file}" in checked.stdout) == (1, True)


def test_a_password_is_checked(run: Run, file: Path) -> None:
    run("users", "create", file, "ada", stdin="open sesame\n")
    assert run("users", "check", file, "ada", stdin="open sesame\n").stdout == "it is that of ada\n"
    wrong = run("users", "check", file, "ada", stdin="other words\n")
    assert (wrong.exit_code, wrong.stdout) == (1, f"{file}: this is not the password of ada\n")


@pytest.mark.parametrize(
    ("words", "given", "said"),
    [
        (("create", "ada"), "", "there is no password on standard input"),
        (("create", "ada"), "short\n", "the password has 5 characters"),
        (("create", "a:da"), "open sesame\n", "invalid user name"),
        (("create", "ada"), " open sesame\n", "invalid password of user ada"),
        (("delete", "bobb"), "", "has no user 'bobb'; did you mean 'bob'?"),
        (("delete", "bob"), "", "bob is the only user"),
        (("check", "ada"), "", "has no user 'ada'"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_explained(run: Run, file: Path, words: tuple[str, ...], given: str, said: str) -> None:
    file.write_text("bob:x\n")
    verb, *rest = words
    result = run("users", verb, file, *rest, stdin=given)
    assert result.exit_code == 2
    assert said in result.stderr
    assert file.read_text() == "bob:x\n"
