"""[pipeline.tls] and [pipeline.user]: names of files, checked before anything starts."""

from pathlib import Path

import pytest

from headrace.link.login import Login
from headrace.pipeline.rules import check_rules, load_rules
from headrace.pipeline.run.terms import address_of
from support.links import make_certs

RULE = '[[rule]]\nname = "a"\nselect = "wx"\ntable = "a"\n'
USER = '[pipeline.user]\nname = "ann"\npassword_file = "ann.password"\n'
TLS = '[pipeline.tls]\nauthority = "certs/authority.crt"\ncertificate = "certs/ann.crt"\nkey = "certs/ann.key"\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_certs(tmp_path / "certs", "ann")
    (tmp_path / "ann.password").write_text("deep-secret\n")
    return tmp_path


def written(folder: Path, tables: str, place: str = 'site = "tls/127.0.0.1:7447"', name: str = "rules.toml") -> Path:
    (folder / name).write_text(f"[pipeline]\n{place}\n{tables}{RULE}")
    return folder / name


def problems(path: Path) -> list[str]:
    return [f"{problem.problem}; {problem.hint}" for problem in check_rules(path)]


def test_a_login_of_a_file_is_the_names_of_its_files(folder: Path) -> None:
    terms = load_rules(written(folder, TLS + USER)).pipeline
    expected = [
        str(folder / name) for name in ("ann.password", "certs/authority.crt", "certs/ann.crt", "certs/ann.key")
    ]
    assert address_of(terms).login == Login("ann", *expected)
    assert "deep-secret" not in repr(terms)


def test_without_tables_the_environment_logs_in(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_AUTHORITY", "/etc/authority.crt")
    assert address_of(load_rules(written(folder, "")).pipeline).login.authority == "/etc/authority.crt"
    assert address_of(load_rules(written(folder, USER)).pipeline).login.authority is None


@pytest.mark.parametrize(
    ("tables", "told"),
    [
        (USER.replace("password_file", "password"), "give that file as password_file"),
        (USER.replace("ann.password", "nowhere"), "nowhere"),
        ('[pipeline.user]\nname = "ann"\n', "the key is required"),
        (TLS.replace('key = "certs/ann.key"\n', ""), "required together"),
        (TLS.replace("ann.key", "authority.key"), "does not match the certificate"),
        (TLS.replace('authority = "certs/authority.crt"\n', ""), 'write authority = "authority.crt"'),
    ],
)  # fmt: skip
def test_an_incomplete_or_wrong_login_is_a_problem(folder: Path, tables: str, told: str) -> None:
    found = problems(written(folder, tables))
    assert any(told in problem for problem in found), found
    assert "deep-secret" not in str(found)


def test_a_login_without_a_site_has_no_effect_and_is_a_problem(folder: Path) -> None:
    (folder / "q").mkdir()
    found = problems(written(folder, USER, 'queue = "q"'))
    assert any("no effect without a site" in problem for problem in found), found


def test_rules_in_python_log_in_too(folder: Path) -> None:
    (folder / "rules.py").write_text(
        "from headrace import Selection\n"
        "from headrace.pipeline.rules import PipelineTerms, Rule, TableAction, UserTable\n"
        'pipeline = PipelineTerms(site="tcp/127.0.0.1:7447", user=UserTable(name="ann", password_file="ann.password"))\n'
        'def rules():\n    return [Rule(name="a", select=Selection("wx"), table=TableAction(path="a"))]\n'
    )
    assert address_of(load_rules(folder / "rules.py").pipeline).login.user == "ann"
