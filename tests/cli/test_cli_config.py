"""headrace config: check, show and example."""

from pathlib import Path

import pytest

from headrace import Queue
from headrace.site import load_config
from headrace.site.example import EXAMPLE
from support.commandline import Run, objects

WRONG = """\
[site]
queue = "wx.queue"
beat = 500
[[request]]
select = "wx/** priorty 5"
idnet = "^SA"
"""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    path = tmp_path / "site.toml"
    path.write_text(EXAMPLE)
    return path


def test_a_valid_file_is_reported_as_valid(run: Run, site: Path) -> None:
    result = run("config", "check", "site.toml")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "site.toml is valid\n", "")
    assert objects(run("config", "check", "site.toml", "--json").stdout) == [
        {"path": "site.toml", "ok": True, "warnings": 0, "problems": []}
    ]


def test_every_problem_is_listed_with_its_line_and_remedy(run: Run, site: Path) -> None:
    site.write_text(WRONG)
    result = run("config", "check", "site.toml")
    assert result.exit_code == 2
    assert result.stdout.splitlines() == [
        "site.toml:3: [site] beat: 500 has no unit",
        '  try: write a duration with its unit, such as "500ms"',
        "site.toml:5:17: [[request]] 1 select: there is no clause 'priorty'",
        "  wx/** priorty 5",
        "        ^",
        "  try: did you mean priority? the clauses are ident, tag, priority, origin, slice, created, age, replay, every, xpath, "
        "function, where",
        "site.toml:6: [[request]] 1: unknown key 'idnet'",
        "  try: did you mean 'ident'?",
    ]
    assert result.stderr == "site.toml: 3 problems\n"


def test_problems_are_json_for_programs(run: Run, site: Path) -> None:
    site.write_text(WRONG)
    result = run("config", "check", "site.toml", "--json")
    assert result.exit_code == 2
    (told,) = objects(result.stdout)
    assert [(each["line"], each["column"], each["table"], each["key"]) for each in told["problems"]] == [
        (3, None, "[site]", "beat"), (5, 17, "[[request]] 1", "select"), (6, None, "[[request]] 1", ""),
    ]  # fmt: skip
    assert all(each["hint"] for each in told["problems"])


def test_a_missing_or_invalid_file_is_reported(run: Run, site: Path) -> None:
    result = run("config", "check", "none.toml")
    assert (result.exit_code, result.stdout.splitlines()[0]) == (2, "none.toml: the file does not exist")
    site.write_text("[site]\nbeat = 1h\n")
    result = run("config", "check", "site.toml")
    assert result.exit_code == 2
    assert result.stdout.startswith("site.toml:2:9: not TOML: ")


def test_effective_values_are_shown_with_defaults_marked(run: Run, site: Path, tmp_path: Path) -> None:
    site.write_text('[site]\nqueue = "wx.queue"\nname = "me"\n[[request]]\nselect = "a"\nident = "^SA"\n')
    result = run("config", "show", "site.toml", "--effective")
    assert result.exit_code == 0
    lines = [" ".join(line.split()) for line in result.stdout.splitlines()]
    for line in [
        f'queue = "{tmp_path}/wx.queue"',
        'name = "me"',
        'listen = ["local"] # default',
        'beat = "500ms" # default',
        'size = "1GiB" # default',
        "# age is not set",
        'select = "a ident ~ \\"^SA\\""',
        'name = "request 1" # default',
        'level = "info" # default',
        "# not in the file: [[channel]], [[allow]], [[deny]], [[quota]], [[key]], [[verify]], [tls], [users], [functions]",
    ]:
        assert line in lines, result.stdout


def test_without_effective_only_the_values_in_the_file_are_shown(run: Run, site: Path, tmp_path: Path) -> None:
    site.write_text('[site]\nqueue = "wx.queue"\n[log]\nper_second = 7\n')
    shown = run("config", "show", "site.toml").stdout
    assert [line for line in shown.splitlines() if "=" in line] == [f'queue = "{tmp_path}/wx.queue"', "per_second = 7"]


@pytest.mark.parametrize("words", [["--effective"], []])
def test_the_shown_configuration_loads_again(run: Run, site: Path, tmp_path: Path, words: list[str]) -> None:
    again = tmp_path / "elsewhere" / "again.toml"
    again.parent.mkdir()
    again.write_text(run("config", "show", "site.toml", *words).stdout)
    assert load_config(again) == load_config(site)


def test_the_terms_of_an_existing_queue_are_marked_as_its_own(run: Run, site: Path, tmp_path: Path) -> None:
    Queue.create(tmp_path / "wx.queue", size="4MiB", age="1h", origin="there").close()
    site.write_text('[site]\nqueue = "wx.queue"\n')
    lines = [" ".join(line.split()) for line in run("config", "show", site, "--effective").stdout.splitlines()]
    assert {'name = "there" # from the queue', 'size = "4MiB" # from the queue', 'age = "1h" # from the queue'} <= set(
        lines
    )


def test_effective_values_are_json_for_programs(run: Run, site: Path) -> None:
    (told,) = objects(run("config", "show", "site.toml", "--effective", "--json").stdout)
    values = {(each["table"], each["place"], each["key"]): (each["value"], each["source"]) for each in told["values"]}
    assert values["site", None, "beat"] == ("500ms", "file")
    assert values["request", 1, "from"] == ("1h", "file")
    assert values["request", 2, "from"] == ("now", "default")
    assert values["log", None, "file"] == (None, "default")


def test_secrets_are_not_shown(run: Run, site: Path, tmp_path: Path) -> None:
    (tmp_path / "p").write_text("hush-hush\n")
    (tmp_path / "u").write_text("somebody:whisper\n")
    site.write_text(
        '[site]\nqueue = "q"\n[users]\nname = "a"\npassword_file = "p"\ndictionary_file = "u"\n[log]\nlevel = "info"\n'
    )
    for words in (["show", site], ["show", site, "--effective"], ["show", site, "--effective", "--json"]):
        result = run("config", *words)
        assert result.exit_code == 0
        assert "hush" not in result.output
        assert "whisper" not in result.output
        assert str(tmp_path / "p") in result.output
    (tmp_path / "u").write_text("somebody whisper\n")
    (tmp_path / "p").write_text("hush\nhush\n")
    result = run("config", "check", site)
    assert result.exit_code == 2
    assert "hush" not in result.output
    assert "whisper" not in result.output


def test_an_invalid_file_is_not_shown(run: Run, site: Path) -> None:
    site.write_text(WRONG)
    result = run("config", "show", "site.toml")
    assert (result.exit_code, result.stdout) == (2, "")
    problem, hint = result.stderr.splitlines()
    assert problem == "headrace: site.toml:3: [site] beat: 500 has no unit (and 2 more problems)"
    assert hint.endswith("headrace config check site.toml")


def test_the_example_is_printed(run: Run) -> None:
    result = run("config", "example")
    assert (result.exit_code, result.stdout) == (0, EXAMPLE)
    assert objects(run("config", "example", "--json").stdout) == [{"toml": EXAMPLE}]
