"""`headrace keys`: create, show, list and revoke."""

import json
from pathlib import Path

import pytest

from headrace.relay.signing.keyring import parse_public, public_text, read_private, read_revoked
from support.commandline import Run

SITE = """
[site]
queue = "wx.queue"
name = "denver"

[sign]
key = "denver.sign.key"
revoked = "revoked.keys"

[[key]]
origin = "boulder"
public = "{public}"
until = "2030-01-01T00:00:00Z"
"""


def test_a_key_is_created_shown_listed_and_revoked(run: Run, tmp_path: Path) -> None:
    made = json.loads(run("keys", "create", str(tmp_path), "denver", "--json").output)
    other = json.loads(run("keys", "create", str(tmp_path), "boulder", "--json").output)
    assert read_private(Path(made["file"])).public_key().public_bytes_raw() == parse_public(made["public"])
    shown = json.loads(run("keys", "show", made["file"], "--json").output)
    assert (shown["id"], shown["public"], shown["until"]) == (made["id"], made["public"], None)
    revoked = tmp_path / "revoked.keys"
    said = run("keys", "revoke", str(revoked), other["id"], "--reason", "a\nnote").output
    assert "is revoked" in said
    assert json.loads(run("keys", "revoke", str(revoked), other["id"], "--json").output)["was_revoked"]
    assert [f"{number:x}" for number in read_revoked(revoked)] != []
    assert revoked.read_text() == f"{other['id']} a note\n"
    file = tmp_path / "site.toml"
    file.write_text(SITE.format(public=other["public"]))
    listed = json.loads(run("keys", "list", str(file), "--json").output)["keys"]
    assert [(each["origin"], each["state"]) for each in listed] == [("denver", "signs here"), ("boulder", "revoked")]
    assert "signs here" in run("keys", "list", str(file)).output


def test_what_is_no_key_is_refused_with_a_remedy(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "x.pem"
    file.write_text("no key")
    file.chmod(0o600)
    assert "no public key" in run("keys", "show", str(file)).output
    assert "not a file" in run("keys", "show", str(tmp_path / "missing")).output
    assert "not the id of a key" in run("keys", "revoke", str(tmp_path / "revoked"), "denver").output
    assert not (tmp_path / "revoked").exists()


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ('[[key]]\norigin = "a"', "either public or file"),
        (f'[[key]]\norigin = "a"\npublic = "{public_text(bytes(31))}"', "not a public key"),
        ('[[verify]]\nfeeds = ["wx/**"]\nmode = "require"', "no key is known"),
        ('[sign]\nkey = "open.key"', "chmod 600"),
    ],
)
def test_a_configuration_that_cannot_work_is_refused(run: Run, tmp_path: Path, lines: str, problem: str) -> None:
    key = Path(json.loads(run("keys", "create", str(tmp_path), "open", "--json").output)["file"])
    key.rename(tmp_path / "open.key").chmod(0o644)
    file = tmp_path / "site.toml"
    file.write_text(f'[site]\nqueue = "wx.queue"\nname = "denver"\n{lines}\n')
    assert problem in run("config", "check", str(file)).output
