"""`headrace certs`: from nothing to a site's certificate in two commands."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from headrace.link import certificates as library
from support.commandline import Run, objects


def test_two_commands_make_an_authority_and_a_certificate(run: Run, tmp_path: Path) -> None:
    first = run("certs", "authority", "certs")
    assert first.exit_code == 0
    assert "Headrace authority, valid until 20" in first.stdout
    second = run("certs", "site", "certs", "denver", "--host", "denver.example.org", "--host", "192.0.2.7")
    assert second.exit_code == 0
    assert "certs/denver.crt and certs/denver.key" in second.stdout
    assert (tmp_path / "certs" / "denver.key").stat().st_mode & 0o777 == 0o600


def test_a_certificate_is_shown_with_its_names_and_dates(run: Run) -> None:
    run("certs", "authority", "certs")
    run("certs", "site", "certs", "denver", "--host", "denver.example.org", "--days", 10)
    result = run("certs", "show", "certs/denver.crt")
    assert result.exit_code == 0
    for word in ("denver", "denver.example.org", "Headrace authority", "valid until", "days left"):
        assert word in result.stdout
    assert "authority" in run("certs", "show", "certs/authority.crt").stdout


def test_every_command_has_json_output(run: Run) -> None:
    (made,) = objects(run("certs", "authority", "certs", "--json").stdout)
    assert (made["authority"], made["key"]) == (True, "certs/authority.key")
    (made,) = objects(run("certs", "site", "certs", "denver", "--host", "::1", "--days", "10", "--json").stdout)
    assert (made["name"], made["hosts"], made["path"]) == ("denver", ["::1"], "certs/denver.crt")
    (shown,) = objects(run("certs", "show", "certs/denver.crt", "--json").stdout)
    assert shown["expired"] is False
    assert 9 < shown["days_left"] <= 10
    assert shown["expires"].endswith("Z")


def test_an_expired_certificate_is_exit_code_1(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    class LongAgo(datetime):
        @classmethod
        def now(cls, tz: object = None) -> datetime:  # type: ignore[override]
            return datetime.now(UTC) - timedelta(days=20)

    run("certs", "authority", "certs")
    with monkeypatch.context() as patched:
        patched.setattr(library, "datetime", LongAgo)
        assert run("certs", "site", "certs", "denver", "--days", 10).exit_code == 0
    result = run("certs", "show", "certs/denver.crt")
    assert result.exit_code == 1
    assert "0, expired" in result.stdout
    told = run("certs", "show", "certs/denver.crt", "--json")
    assert (told.exit_code, objects(told.stdout)[0]["expired"]) == (1, True)


def test_existing_files_are_kept_and_the_error_names_them(run: Run) -> None:
    run("certs", "authority", "certs")
    again = run("certs", "authority", "certs")
    assert again.exit_code == 3
    assert again.stderr.splitlines() == [
        "headrace: certs/authority.key already exists",
        "  try: move it away first; no file is overwritten",
    ]


def test_a_certificate_without_an_authority_is_refused_with_a_hint(run: Run) -> None:
    result = run("certs", "site", "certs", "denver")
    assert (result.exit_code, result.stdout) == (3, "")
    assert "headrace certs authority certs" in result.stderr


def test_an_invalid_name_is_a_usage_error(run: Run) -> None:
    run("certs", "authority", "certs")
    assert run("certs", "site", "certs", "den ver").exit_code == 2
