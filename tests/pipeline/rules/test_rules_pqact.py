"""pqact.conf: entries of the LDM become rules, and each entry that is not translated has a reason."""

import tomllib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from rulefile import loaded, told, written

from headrace import Duplicate, Queue
from headrace.errors import RuleError
from headrace.pipeline.rules.pqact import translate
from headrace.pipeline.rules.pqact.entry import entries_of, words_of
from headrace.pipeline.rules.pqact.selection import re2_of
from headrace.pipeline.rules.template import template
from support.commandline import Run

CONF = (Path(__file__).parent / "pqact.conf").read_text()
TRANSLATION = translate(CONF)
RULES: dict[str, Any] = {rule["name"]: rule for rule in tomllib.loads(TRANSLATION.toml)["rule"]}


def line_of(begin: str) -> int:
    """The line of the sample on which an entry begins."""
    return next(number for number, line in enumerate(CONF.splitlines(), 1) if line.startswith(begin))


def rule_of(begin: str) -> dict[str, Any]:
    rule: dict[str, Any] = RULES[f"pqact-{line_of(begin)}"]
    return rule


def rule_from(entry: str) -> dict[str, Any]:
    """The rule of one entry that has no remarks."""
    made = translate(entry)
    assert not made.remarks
    (rule,) = tomllib.loads(made.toml)["rule"]
    return dict(rule)


# --- the sample -----------------------------------------------------------------------------------


def test_the_translation_is_valid_except_for_a_missing_program(tmp_path: Path) -> None:
    toml = TRANSLATION.toml.replace("/data/", f"{tmp_path}/data/")  # a folder that any user may create
    problems = told(written(tmp_path, toml))
    assert {each.split(": ", 2)[2] for each in problems} == {"there is no program 'decoders/dcmetr'"}
    (tmp_path / "decoders").mkdir()
    (tmp_path / "decoders" / "dcmetr").write_text("#!/bin/sh\n")
    (tmp_path / "decoders" / "dcmetr").chmod(0o755)
    assert len(loaded(written(tmp_path, toml)).rules) == TRANSLATION.rules == len(RULES)


def test_the_queue_that_the_file_proposes_has_the_rule_of_ldm(run: Run, tmp_path: Path) -> None:
    (command,) = [line[1:].split() for line in TRANSLATION.toml.splitlines() if "queue create" in line]
    assert run(*[str(tmp_path / "q") if word == "QUEUE" else word for word in command[1:]]).exit_code == 0
    with Queue.open(tmp_path / "q") as queue:
        assert (queue.config.dedup, queue.config.hash) == ("payload", "md5")
        assert queue.put(b"x", feed="wx/text", ident="one") == 1
        assert queue.put(b"x", feed="wx/radar", ident="two") == Duplicate(of=1)


def test_every_entry_is_a_rule_or_has_a_reason() -> None:
    lines = {entry.line for entry in entries_of(CONF) if entry.action != "NOOP"}
    ruled = {int(name.split("-")[1]) for name in RULES}
    refused = {remark.line for remark in TRANSLATION.untranslated}
    assert ruled | refused == lines
    assert not ruled & refused
    assert all(remark.reason and remark.text for remark in TRANSLATION.remarks)


@pytest.mark.parametrize(
    ("begin", "reason"),
    [
        ("ANY\t^_ELSE_", "_ELSE_ depends on entries above that select only some of these feeds"),
        ("EXP\t^pan(.*)\tPIPE\t-nodata", "-nodata without -metadata gives the program nothing"),
        ("EXP\t^x", r"\d has another meaning in a POSIX pattern"),
        ("EXP\t^q", r"\2 is used, and the pattern has 1 group"),
        ("EXP\t^r", "%U is not supported"),
        ("EXP\t^(s)", "SPIPE frames products in a format of its own"),
        ("BOGUS", "the feed type BOGUS is unknown"),
        ("EXP ^no-tabs", "the entry has fewer than three fields"),
        ("EXP\t^u", "the option -bogus is unknown"),
        ("EXP\t^v", "the path '../v' has the part '..'"),
        ("EXP\t^w", "(…:xx) is unknown"),
        ("include", "the entry includes another file"),
    ],
)
def test_an_entry_that_is_not_translated_has_a_reason(begin: str, reason: str) -> None:
    (remark,) = [each for each in TRANSLATION.untranslated if each.line == line_of(begin)]
    assert remark.reason.startswith(reason)
    assert remark.hint
    assert f"# pqact.conf:{remark.line}: not translated: {reason}" in TRANSLATION.toml


def test_files_have_their_paths_and_options() -> None:
    assert rule_of("IDS|DDPLUS\t^S[AP]")["file"] == "data/surface/sao/{time(1):%Y}{time(1):%m}{1}{2}_sao.wmo"
    assert rule_of("IDS|DDPLUS\t^SXUS")["file"] == "data/surface/cman/{time(1):%y}{time(1):%b:lower}{1}.wmo"
    assert rule_of("DDPLUS|IDS\t^S[IMN]")["file"] == "data/surface/syn/{created:%Y%m%d%H}.wmo"
    assert rule_of("NGRID")["file"] == {"path": "{1}{2}.grib", "folder": "/data/ngrid"}
    assert rule_of("NEXRAD3")["file"] == {
        "path": "data/nids/{5:path}/{4}/{4}_{time(1):%Y}{time(1):%m}{1}_{2}{3}", "mode": "overwrite", "remove": ["wmo"],
    }  # fmt: skip
    warning = rule_of("DDPLUS\t^W[FU]US5[0-9] (K[A-Z]{3}) ([0-3][0-9])([0-2][0-9])([0-5][0-9]).* /p(TOR|SVR|FFW)")
    assert warning["file"]["path"] == "warnings/{5}/{6:path}_{2}{3}{4}_{origin_sequence}.txt"
    assert rule_of("FNMOC")["file"] == "fnmoc/{2}/{1:path}.{{x}}.grib"
    assert rule_of("EXP\t^_ELSE_")["not_ident"].startswith(r"^_|(?:^TEST)|(?:^(.*\.nc)$)")


def test_programs_have_their_commands() -> None:
    assert rule_of("WMO\t^S[AP]")["pipe"][:3] == ["decoders/dcmetr", "-v", "2"]
    assert rule_of("WMO\t^S[AP]")["pipe"][-1] == "data/gempak/surface/YYYYMMDD_sao.gem"
    (told_by,) = [rule for rule in RULES.values() if rule.get("exec", {}) and isinstance(rule["exec"], dict)]
    assert told_by["exec"] == {
        "command": ["/bin/echo", "warning of {6}", "{1}", "-t", "{created:%H}:{created:%M}"], "content": "none",
    }  # fmt: skip
    assert rule_of("PPS")["exec"] == ["/bin/cat", "-n"]  # -close: a program for each product
    assert rule_of("IDS|DDPLUS\t^NOUS41")["pipe"] == {"command": ["/bin/cat"], "remove": ["controls", "non-ascii"]}


def test_databases_become_tables_with_one_writer_each() -> None:
    hds = rule_of("HDS\t")
    assert hds["table"] == {"path": "data/hds", "partition_by": ["file"]}
    assert "date_format(created, 'yyyyMMdd')" in hds["sql"]
    assert rule_of("HDS|CONDUIT")["table"] == "data/products.db"
    assert rule_of("GEM\t")["table"].startswith("data/products.db.")


def test_feed_types_select_their_feeds() -> None:
    assert rule_of("IDS|DDPLUS\t^S[AP]")["select"] == "wx/text/**"
    assert rule_of("DDPLUS\t^W")["select"] == "wx/text/bulletin/**|wx/text/ddplus/**|wx/text/metar/**"
    assert rule_of("CRAFT")["select"] == "wx/radar/nexrad2/**"
    assert rule_of("NGRID")["select"] == "wx/grid/ngrid/**"
    assert rule_of("UNIWISC|NIMAGE")["select"] == "wx/satellite/**"


def test_a_union_of_feed_types_is_one_rule_with_one_program() -> None:
    rule = rule_of("WMO\t^S[AP]")
    assert rule["select"] == "wx/model/hds/**|wx/obs/bufr/**|wx/text/**"
    assert [name for name in RULES if name.startswith(rule["name"])] == [rule["name"]]


def test_a_translated_path_is_the_one_that_pqact_would_write() -> None:
    rule = rule_of("IDS|DDPLUS\t^SXUS")
    row = {"ident": "SXUS20 KWAL 311955", "created": datetime(2026, 1, 1, 0, 5, tzinfo=UTC)}
    assert template(rule["file"], "path", rule["ident"]).text(row) == "data/surface/cman/25dec31.wmo"
    rule = rule_of("NEXRAD2")
    row = {"ident": "L2-BZIP2/KFTG/20260106/1/S", "created": row["created"]}
    assert template(rule["file"]["path"], "path", rule["ident"]).text(row) == "level2/raw/KFTG/20260106/1/S"


# --- the parts ------------------------------------------------------------------------------------


def test_the_user_may_map_feed_types() -> None:
    text = "BOGUS|IDS\t^x\tFILE\tx\n"
    made = translate(text, feeds={"bogus": "my/feed", "IDS": "my/ids"}, queue="other.queue")
    data = tomllib.loads(made.toml)
    assert [rule["select"] for rule in data["rule"]] == ["my/**"]
    assert data["pipeline"]["queue"] == "other.queue"
    with pytest.raises(RuleError):
        translate(text, feeds={"IDS": "not a feed"})


def test_feeds_of_two_types_do_not_contain_each_other() -> None:
    with pytest.raises(RuleError, match="contain each other") as refused:
        translate("IDS\t^x\tFILE\tx\n", feeds={"IDS": "wx/text"})
    assert refused.value.hint
    same = translate("IDS\t^x\tFILE\tx\n", feeds={"IDS": "all", "DDS": "all"})
    assert tomllib.loads(same.toml)["rule"][0]["select"] == "all/**"


@pytest.mark.parametrize(
    ("entry", "action", "values"),
    [
        ("EXP\t^a\tFILE\t-metadata\tx", "file", {"path": "x", "metadata": "ldm"}),
        ("EXP\t^a\tSTDIOFILE\t-me -ov\tx", "file", {"path": "x", "mode": "overwrite", "metadata": "ldm"}),
        ("EXP\t^a\tPIPE\t-metadata\t/bin/cat", "pipe", {"command": ["/bin/cat"], "metadata": "ldm"}),
        ("EXP\t^a\tPIPE\t-close -metadata\t/bin/cat", "exec", {"command": ["/bin/cat"], "metadata": "ldm"}),
        ("EXP\t^a\tPIPE\t-metadata -nodata\t/bin/cat", "pipe",
         {"command": ["/bin/cat"], "metadata": "ldm", "content": "none"}),
        ("EXP\t^a\tPIPE\t-metadata -strip\t/bin/cat", "pipe",
         {"command": ["/bin/cat"], "metadata": "ldm", "remove": ["controls", "non-ascii"]}),
        ("EXP\t^a\tPIPE\t-flush\t/bin/cat", "pipe", ["/bin/cat"]),
        ("EXP\t^a\tEXEC\t-wait\t/bin/true", "exec", {"command": ["/bin/true"], "content": "none"}),
    ],
)  # fmt: skip
def test_options_are_translated(entry: str, action: str, values: Any, tmp_path: Path) -> None:
    assert rule_from(entry)[action] == values
    loaded(written(tmp_path, translate(entry).toml))


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ("EXP\t^a\tFILE\t-nodata\tx", "the option -nodata is unknown"),
        ("EXP\t^a\tEXEC\t-flush\t/bin/true", "the option -flush is unknown"),
        ("EXP\t^a\tDBFILE\t-x\tx.db", "the option -x is unknown"),
        ("EXP\t^a\tFILE\t-m\tx", "the option -m is unknown"),
        ("EXP\t^a\tPIPE\t-nodata\t/bin/cat", "-nodata without -metadata gives the program nothing"),
        ("EXP\t^a\tXPIPE\t/bin/cat", "XPIPE frames products in a format of its own"),
    ],
)
def test_other_options_are_refused_with_line_and_remedy(entry: str, reason: str) -> None:
    (remark,) = translate(f"# a remark\n{entry}\n").untranslated
    assert (remark.line, remark.reason) == (2, reason)
    assert remark.hint


def test_programs_that_pqact_would_share_are_remarked_on() -> None:
    """Two programs on one output file would damage it."""
    made = translate(
        "IDS\t^a\tPIPE\tdecoder out.gem\nIDS\t^b\tPIPE\tdecoder other.gem\nHDS\t^c\tPIPE\tdecoder out.gem\n"
    )
    (remark,) = made.remarks
    assert (made.rules, remark.line, remark.is_translated) == (3, 3, True)
    assert remark.reason.startswith("line 1 has the same command, and pqact passes both to one program")


def test_a_file_of_1700_entries_becomes_1700_rules(tmp_path: Path) -> None:
    """As large sites have them; each entry is one rule, and the result is valid."""
    entries = (
        f"IDS|DDPLUS\t^S[AP]US{number % 100:02d} (K{number:04d}) ([0-3][0-9])([0-2][0-9])\tFILE\t"
        f"data/{number}/(\\2:yyyy)(\\2:mm)\\2\\3_\\1.wmo"
        if number % 3
        else f"WMO\t^T{number:04d}\tPIPE\t-metadata\t/bin/cat {number}"
        for number in range(1700)
    )
    made = translate("\n".join(entries))
    assert (made.rules, made.remarks) == (1700, ())
    rules = loaded(written(tmp_path, made.toml)).rules
    assert len({rule.name for rule in rules}) == 1700
    assert {rule.select.feed for rule in rules} == {"wx/text/**", "wx/model/hds/**|wx/obs/bufr/**|wx/text/**"}


@pytest.mark.parametrize(
    ("posix", "made"),
    [
        (r"^SA.. (K[A-Z]{3})\.", r"^SA.. (K[A-Z]{3})\."),
        (r"[\.]x[]a]", r"[\\.]x[]a]"),
        (r"\<a\>", r"\ba\b"),
        (r"[[:alpha:]]+[^/]*", r"[[:alpha:]]+[^/]*"),
        (r"a\/b\-c", r"a\/b\-c"),
    ],
)
def test_patterns_keep_their_meaning(posix: str, made: str) -> None:
    assert re2_of(posix) == made


def test_lines_are_joined_and_words_split_as_pqact_does() -> None:
    text = "# remark\nIDS\t^a b\n# between\n \tFILE\t-close\n\n\tx y\nHDS\t^c\tNOOP\n"
    first, second = entries_of(text)
    assert (first.line, first.feedtype, first.pattern, first.action, first.arguments) == (
        2, "IDS", "^a b", "FILE", "-close x y",
    )  # fmt: skip
    assert (second.line, second.action) == (7, "NOOP")
    assert words_of('a "b c"  d"e f" ""') == ["a", "b c", "de f", ""]


def test_empty_and_invalid_files_have_no_rules(tmp_path: Path) -> None:
    assert translate("").rules == 0
    for text in (
        "\0\t\0\t\0",
        "IDS\t(\tFILE\tx",
        "IDS\t^a\tFILE",
        "IDS\t^a\tPIPE\t-close",
        "IDS\t^a\tDBFILE",
        "\t\t\t",
    ):
        made = translate(text)
        tomllib.loads(made.toml)
        assert made.rules == 0
