"""`headrace config check` warns of every unsafe combination, each with a remedy; `--strict` makes it an error."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner

from headrace.cli.config import config
from headrace.link import certificates
from headrace.link.certificates import make_authority, make_certificate
from headrace.site import check_config
from headrace.site.loading import check_warnings
from support.links import LOOPBACK

TLS = "[tls]\nauthority = 'authority.crt'\ncertificate = 'hub.crt'\nkey = 'hub.key'\n"
USERS = "[users]\ndictionary_file = 'users'\n"
DENVER = "[[allow]]\nwho = ['denver']\nreceive = ['wx/**']\n"
KEY = f"[[key]]\norigin = 'denver'\npublic = '{'A' * 43}='\n"
SAFE = f"listen = ['tls/0.0.0.0:7447']\n{TLS}{DENVER}"


@pytest.fixture(autouse=True)
def files(tmp_path: Path) -> None:
    make_authority(tmp_path)
    make_certificate(tmp_path, "hub", LOOPBACK)
    (tmp_path / "users").write_text("denver:a\nboulder:b\n")
    (tmp_path / "users").chmod(0o600)


def written(folder: Path, text: str) -> Path:
    path = folder / "site.toml"
    path.write_text("[site]\nqueue = 'q'\nname = 'hub'\n" + text)
    assert check_config(path) == []
    return path


def warned(folder: Path, text: str) -> list[str]:
    found = check_warnings(written(folder, text))
    assert all(each.hint for each in found)
    return [f"{each.table} {each.key}: {each.problem}" for each in found]


def test_certificates_and_rules_for_names_are_no_unsafe_combination(tmp_path: Path) -> None:
    assert warned(tmp_path, SAFE) == []
    assert warned(tmp_path, "") == [], "a site for this machine alone"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"listen = ['tls/0.0.0.0:7447']\n{TLS}", "[site] listen: 'tls/0.0.0.0:7447' is open to other machines, and without"),
        (f"listen = ['tls/0.0.0.0:1', 'tcp/0.0.0.0:2']\n{TLS}{DENVER}", "'tcp/0.0.0.0:2' is without certificates"),
        (f"listen = []\nconnect = ['tcp/a.example.org:2', 'tls/b.example.org:3']\n{TLS}{DENVER}",
         "[site] connect: 'tcp/a.example.org:2' is without certificates"),
        (f"listen = ['tcp/0.0.0.0:7447']\n{USERS}{DENVER}", "'tcp/0.0.0.0:7447' is not encrypted"),
        (f"listen = ['tls/0.0.0.0:1']\n{TLS}mutual = false\n[[allow]]\nwho = '*'\nreceive = ['wx/**']\n",
         "[tls] mutual: clients need neither a certificate nor a password"),
        (f"scouting = 'link'\n{USERS}{DENVER}", "[site] scouting: this site links to whoever answers"),
        (SAFE + "[[allow]]\nwho = '*'\npublish = ['wx/a']\n", "[[allow]] 2 publish: everybody may put products here"),
        (SAFE + "[[allow]]\nwho = '*'\nreceive = ['wx/a']\nstation = ['wx/a']\n", "[[allow]] 2 station: everybody may have"),
        (SAFE + "[[allow]]\nwho = '*'\nmanage = ['wx/a']\n", "[[allow]] 2 manage: everybody may stop producers"),
        (SAFE + "[[allow]]\nwho = ['relay']\npublish = ['rel/**']\nrelay = true\n"
         "[[allow]]\nwho = ['boulder']\npublish = ['obs/**']\n",
         "[[allow]] 2 relay: relay cannot speak for boulder, which may publish feeds that it may not"),
        (SAFE + "[[allow]]\nwho = ['relay']\npublish = ['**']\nrelay = true\n",
         "[[allow]] 2 relay: relay may publish everything in the name of every site"),
        (SAFE + KEY + "[[verify]]\nfeeds = ['**']\nmode = 'off'\n[[verify]]\nfeeds = ['wx/**']\nmode = 'require'\n",
         "[[verify]] 2 feeds: an earlier [[verify]] decides about wx/**"),
        (SAFE + KEY + "[[verify]]\nfeeds = ['**']\nmode = 'require'\n[queue]\ndedup = 'none'\n",
         "[queue] dedup: a queue without duplicate rejection"),
        (f"{SAFE}publish = ['wx/text/**']\n[queue]\ndedup = 'payload'\n", "[queue] dedup: who may publish one feed can keep"),
        (f"{USERS}[[allow]]\nwho = ['denver', 'chicago']\nreceive = ['**']\n", "[[allow]] 1 who: users has no user chicago"),
    ],
)  # fmt: skip
def test_an_unsafe_combination_is_a_warning(tmp_path: Path, text: str, said: str) -> None:
    assert any(said in each for each in warned(tmp_path, text)), warned(tmp_path, text)


def test_a_certificate_of_another_name_is_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "site.toml"
    path.write_text(f"[site]\nqueue = 'q'\nname = 'denver'\n{SAFE}")
    (found,) = check_warnings(path)
    assert "the certificate is that of 'hub'" in found.problem


def test_an_authority_that_others_can_change_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / "authority.crt").chmod(0o666)
    (found,) = warned(tmp_path, SAFE)
    assert found.startswith(f"[tls] authority: {tmp_path / 'authority.crt'}")


@pytest.mark.parametrize("mode", [0o644, 0o620])
def test_a_key_that_others_can_read_or_change_is_refused(tmp_path: Path, mode: int) -> None:
    path = written(tmp_path, SAFE)
    (tmp_path / "hub.key").chmod(mode)
    (problem,) = check_config(path)
    assert problem.hint == f"run: chmod 600 {tmp_path / 'hub.key'}"


def test_users_and_passwords_that_others_can_read_are_refused(tmp_path: Path) -> None:
    (tmp_path / "users").chmod(0o604)
    (tmp_path / "password").write_text("secret\n")
    (tmp_path / "password").chmod(0o644)
    both = f"{USERS}name = 'denver'\npassword_file = 'password'\n{DENVER}"
    path = tmp_path / "site.toml"
    path.write_text("[site]\nqueue = 'q'\nname = 'hub'\n" + both)
    problems = check_config(path)
    assert {each.hint for each in problems} == {f"run: chmod 600 {tmp_path / name}" for name in ("users", "password")}


@pytest.mark.parametrize(("in_days", "said"), [(10, "expires in "), (2, "expires in ")])
def test_a_certificate_that_expires_soon_is_a_warning(tmp_path: Path, in_days: int, said: str) -> None:
    for suffix in ("crt", "key"):
        (tmp_path / f"hub.{suffix}").unlink()
    make_certificate(tmp_path, "hub", LOOPBACK, days=in_days)
    (found,) = warned(tmp_path, SAFE)
    assert found.startswith("[tls] certificate: ")
    assert said in found


def test_an_authority_that_has_expired_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Earlier(datetime):
        @classmethod
        def now(cls, tz: object = None) -> datetime:  # type: ignore[override]
            return datetime.now(UTC) - timedelta(days=4000)

    (tmp_path / "old").mkdir()
    with monkeypatch.context() as patch:
        patch.setattr(certificates, "datetime", Earlier)
        make_authority(tmp_path / "old")
    (tmp_path / "authority.crt").write_bytes(
        (tmp_path / "old" / "authority.crt").read_bytes() + (tmp_path / "authority.crt").read_bytes()
    )
    (found,) = warned(tmp_path, SAFE)
    assert found.startswith("[tls] authority: ")
    assert "has expired" in found


def test_strict_makes_a_warning_an_error(tmp_path: Path) -> None:
    path = written(tmp_path, SAFE + "[[allow]]\nwho = '*'\npublish = ['wx/a']\n")
    lenient = CliRunner().invoke(config, ["check", str(path)], standalone_mode=False)
    strict = CliRunner().invoke(config, ["check", str(path), "--strict"], standalone_mode=False)
    assert (lenient.return_value, strict.return_value) == (0, 2)
    assert "everybody may put products here" in strict.output
    assert "try: name those who may" in strict.output
