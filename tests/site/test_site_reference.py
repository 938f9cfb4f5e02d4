"""The example, the reference and the unit file are correct."""

import configparser
import re
import tomllib
from pathlib import Path

import pytest
from siteconfig import SITE, Write, reported

from headrace.link.certificates import make_authority, make_certificate
from headrace.relay.signing.keyring import make_key
from headrace.selection.table_keys import CLAUSES
from headrace.site import check_config, load_config
from headrace.site.config import REPEATED, TABLES
from headrace.site.example import EXAMPLE
from headrace.toml.kinds import toml_lines
from headrace.toml.layout import Key, keys_of

ROOT = Path(__file__).parent.parent.parent
REFERENCE = (ROOT / "docs" / "site.md").read_text()
SWITCHED_OFF = re.compile(r"(?m)^#(?=[\[a-z])")  # "#" without a blank, before a key or a table


def bracketed(table: str) -> str:
    return f"[[{table}]]" if table in REPEATED else f"[{table}]"


# --- the example ----------------------------------------------------------------------------------


def test_the_example_in_contrib_is_the_one_that_is_printed() -> None:
    assert (ROOT / "contrib" / "site.toml").read_text() == EXAMPLE


def test_the_example_is_valid(write: Write) -> None:
    path = write(EXAMPLE)
    assert reported(path) == []
    assert [request.name for request in load_config(path).request] == ["radar", "request 2"]


def test_the_example_with_everything_switched_on_has_every_key_and_is_valid(write: Write, tmp_path: Path) -> None:
    text = SWITCHED_OFF.sub("", EXAMPLE).replace('["local"]', '["local", "tls/[::]:7447"]')
    authority = make_authority(tmp_path)
    make_certificate(tmp_path, "site1").path.rename(tmp_path / "site1.pem")
    authority.path.rename(tmp_path / "authority.pem")
    make_key(tmp_path, "site1")
    make_key(tmp_path, "site3")[0].rename(tmp_path / "site3.pem")
    (tmp_path / "revoked.keys").touch()
    (tmp_path / "site1.password").write_text("secret\n")
    (tmp_path / "users.txt").write_text("site2:a\nsite3:b\n")
    problems = reported(write(text))
    elsewhere = ("no module 'my_site'", "lacks dictionary 3f2a91c0")
    assert [problem for problem in problems if not any(each in problem for each in elsewhere)] == []
    data = tomllib.loads(text)
    for table, struct in TABLES.items():
        elements = data[table] if table in REPEATED else [data[table]]
        assert {key.name for key in keys_of(struct)} <= {name for each in elements for name in each}, table


# --- the reference --------------------------------------------------------------------------------


def section(table: str) -> str:
    """The section of the reference about a table."""
    return REFERENCE.split(f"\n## {bracketed(table)}\n")[1].split("\n## ")[0]


def rows(table: str) -> dict[str, list[str]]:
    """Value, default and meaning of each key."""
    cells = [
        [cell.strip() for cell in line.strip("|").split(" | ")] for line in section(table).splitlines() if "|" in line
    ]
    assert [cell.strip() for cell in cells[0]] == ["key", "value", "default", "meaning"]
    return {name: row[1:] for row in cells[2:] for name in re.findall(r"`([^`]+)`", row[0])}


def default_text(key: Key) -> str | None:
    """A default as the reference writes it; None if the reference describes it in words."""
    if key.is_required:
        return "required"
    if key.default is None or key.default == "":
        return None
    (line,) = toml_lines({"x": key.kind.write(key.default)})
    return f"`{line.removeprefix('x = ')}`"


@pytest.mark.parametrize("table", TABLES)
def test_the_reference_has_every_key_with_its_kind_and_default_and_no_other(table: str) -> None:
    keys = {key.name: key for key in keys_of(TABLES[table])}
    clauses = CLAUSES if table == "request" else ()
    found = rows(table)
    assert list(found) == [*keys, *clauses]
    for name, key in keys.items():
        value, default, meaning = found[name]
        assert value == key.kind.name, name
        assert default == default_text(key) or (default_text(key) is None and default), name
        assert meaning


def test_the_reference_has_every_table_and_no_other() -> None:
    headings = re.findall(r"(?m)^## (\[.*)$", REFERENCE)
    assert headings == [*(bracketed(table) for table in TABLES if table != "log"), "[functions]", "[log]"]


def test_the_shortest_file_of_the_reference_is_valid(write: Write) -> None:
    (text,) = re.findall(r"```toml\n(.*?)```", REFERENCE, re.S)
    assert reported(write(text)) == []


def test_the_problems_shown_in_the_reference_are_those_reported(write: Write) -> None:
    text = f'{SITE}[[request]]\nselect = "a"\n[[request]]\nselect = "b"\nidnet = "x"\n[[request]]\nselect = "wx/** priorty 5"\n'
    shown = REFERENCE.split("```")[5]
    for found in check_config(write(text)):
        about = f"{found.table} {found.key}".strip()
        assert f"{about}: {found.problem}" in shown
        assert found.hint.split(", origin")[0] in shown


# --- the unit file --------------------------------------------------------------------------------


def test_the_unit_file_notifies_reloads_and_is_hardened() -> None:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(ROOT / "contrib" / "headrace@.service")
    service = unit["Service"]
    assert service["Type"] == "notify"
    assert service["ExecStart"] == "headrace serve /etc/headrace/%i.toml"
    assert service["ExecReload"] == "kill -HUP $MAINPID"
    assert service["RestartPreventExitStatus"] == "2"
    assert {service[key] for key in ("NoNewPrivileges", "PrivateTmp", "ProtectHome")} == {"true"}
    assert "ProtectProc" not in service  # processes that share a queue look for each other in /proc
