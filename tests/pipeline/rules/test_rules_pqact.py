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
from headrace.pipeline.rules.template import template
from headrace.pipeline.rules.trial import try_rules
from headrace.product.product import MadeProduct
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
    rules = loaded(written(tmp_path, toml)).rules
    assert len(rules) == len(RULES) == TRANSLATION.rules
    assert len([rule for rule in rules if rule.discard]) == TRANSLATION.discards


def test_the_queue_that_the_file_proposes_has_the_rule_of_ldm(run: Run, tmp_path: Path) -> None:
    (command,) = [line[1:].split() for line in TRANSLATION.toml.splitlines() if "queue create" in line]
    assert run(*[str(tmp_path / "q") if word == "QUEUE" else word for word in command[1:]]).exit_code == 0
    with Queue.open(tmp_path / "q") as queue:
        assert (queue.config.dedup, queue.config.hash) == ("payload", "md5")
        assert queue.put(b"x", feed="wx/text", ident="one") == 1
        assert queue.put(b"x", feed="wx/radar", ident="two") == Duplicate(of=1)


def test_every_entry_is_a_rule_or_has_a_reason() -> None:
    lines = {entry.line for entry in entries_of(CONF) if entry.action != "NOOP"}
    ruled = {int(name.split("-")[1]) for name, rule in RULES.items() if "discard" not in rule}
    refused = {remark.line for remark in TRANSLATION.untranslated}
    assert ruled | refused == lines
    assert not ruled & refused
    assert all(remark.reason and remark.text for remark in TRANSLATION.remarks)


@pytest.mark.parametrize(
    ("begin", "reason"),
    [
        ("EXP\t^x", r"\d has another meaning in a POSIX pattern"),
        ("EXP\t^q", r"\2 is used, and the pattern has 1 group"),
        ("EXP\t^r", "%U is not supported"),
        ("EXP\t^(ss)", "the option -strip is unknown"),
        ("BOGUS", "the feed type BOGUS is unknown"),
        ("EXP ^no-tabs", "the entry has fewer than three fields"),
        ("EXP\t^u", "the option -bogus is unknown"),
        ("EXP\t^v", "the path '../v' has the part '..'"),
        ("EXP\t^w", "(…:xx) is unknown"),
        ("include", "the entry includes 'etc/more.conf', and the place of this file is unknown"),
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
    assert rule_of("FNMOC")["file"] == "fnmoc/{2}/{1:path|}.{{x}}.grib"


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
        ("EXP\t^a\tPIPE\t-nodata\t/bin/cat", "pipe",
         {"command": ["/bin/cat"], "metadata": "ldm", "content": "none"}),
        ("EXP\t^a\tPIPE\t-flush\t/bin/cat", "pipe", ["/bin/cat"]),
        ("EXP\t^a\tSPIPE\t/bin/cat", "pipe", {"command": ["/bin/cat"], "metadata": "ldm-spipe"}),
        ("EXP\t^a\tXPIPE\t-close\t/bin/cat", "exec", {"command": ["/bin/cat"], "metadata": "ldm-xpipe"}),
        ("EXP\t^a(b*)(c|d)(e)?(f(g))\tEXEC\t-wait\techo & \\0 \\1 \\2 \\3 \\4 \\(5) \\& \\.", "exec",
         {"command": ["echo", "{0}", "{0}", "{1|}", "{2}", "{3|}", "{4}", "{5}", "&", "\\."], "content": "none"}),
        ("EXP\t.*\tEXEC\t-wait\techo &", "exec", {"command": ["echo", "{0}"], "content": "none"}),
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
        ("EXP\t^a\tXPIPE\t-metadata\t/bin/cat", "the option -metadata is unknown"),
        ("EXP\t^a\tPOPE\t/bin/cat", "there is no action POPE"),
    ],
)
def test_other_options_are_refused_with_line_and_remedy(entry: str, reason: str) -> None:
    (remark,) = translate(f"# a remark\n{entry}\n").untranslated
    assert (remark.line, remark.reason) == (2, reason)
    assert remark.hint


# --- _ELSE_ and include ---------------------------------------------------------------------------


ELSE = """IDS|DDPLUS\t^SA\tFILE\tsa
HDS\t^SA\tNOOP
IDS\t^_\tFILE\tsystem
WMO\t^_ELSE_$\tFILE\trest
ANY\t^_ELSE_$\tFILE\tother
EXP\t^x\tFILE\tx
"""


def test_an_else_is_a_rule_for_what_no_entry_above_matches(tmp_path: Path) -> None:
    made = translate(ELSE)
    rules = {rule.name: rule for rule in loaded(written(tmp_path, made.toml)).rules}
    assert (made.rules, made.remarks) == (len(rules), ()) == (6, ())
    assert [rule.otherwise for rule in rules.values()] == [False, False, False, True, True, False]
    assert [rule.discard for rule in rules.values()] == [False, True, False, False, False, False]
    assert rules["pqact-4"].select.not_ident == "^_"


@pytest.mark.parametrize(
    ("feed", "ident", "rules"),
    [
        ("wx/text/ids", "SAUS", ["pqact-1"]),
        ("wx/model/hds", "SAUS", []),  # NOOP
        ("wx/model/hds", "YTQA", ["pqact-4"]),
        ("wx/text/ids", "FPUS", ["pqact-4"]),
        ("wx/text/ids", "_END_", ["pqact-3"]),
        ("wx/model/hds", "_END_", []),
        ("wx/radar/nexrad2/KFTG", "L2", ["pqact-5"]),
        ("wx/exp", "x", ["pqact-5", "pqact-6"]),  # an entry below does not count
    ],
)
def test_a_product_reaches_the_rules_that_pqact_would_apply(
    feed: str, ident: str, rules: list[str], tmp_path: Path
) -> None:
    file = loaded(written(tmp_path, translate(ELSE).toml))
    product = MadeProduct(feed, ident, memoryview(b""), 1, b"", "o", 1, None, 0, 0, 4, None, None)
    assert [trial.rule for trial in try_rules(file, [product]) if trial.is_taken] == rules
    refused = [trial.refused_by for trial in try_rules(file, [product]) if trial.rule == "pqact-5"]
    assert ("pqact-5" in rules) == (refused == [None])


def test_an_entry_that_is_not_translated_keeps_its_products_from_an_else(tmp_path: Path) -> None:
    made = translate("EXP\t^a\tFILE\t-bogus x\nEXP\t^_ELSE_$\tFILE\trest\n")
    broken, rest = loaded(written(tmp_path, made.toml)).rules
    assert (made.rules, broken.discard, broken.select.ident, rest.otherwise) == (2, True, "^a", True)


def test_an_else_without_entries_above_takes_everything(tmp_path: Path) -> None:
    (rule,) = loaded(written(tmp_path, translate("EXP\t^_ELSE_$\tFILE\trest\n").toml)).rules
    assert (rule.otherwise, rule.select.not_ident) == (False, "^_")
    assert rule_from("EXP\t_ELSE_\tFILE\tx")["ident"] == "_ELSE_", "only ^_ELSE_$ is special"


def test_included_files_are_translated_in_their_place(run: Run, tmp_path: Path) -> None:
    (tmp_path / "etc" / "radar").mkdir(parents=True)
    main = tmp_path / "etc" / "pqact.conf"
    main.write_text('EXP\t^a\tFILE\ta\ninclude\t"radar/level 3.conf"\nINCLUDE more.conf\nEXP\t^z\tFILE\tz\n')
    (tmp_path / "etc" / "radar" / "level 3.conf").write_text("# radar\nNEXRAD3\t^SDUS\tFILE\tr\ninclude ../more.conf\n")
    (tmp_path / "etc" / "more.conf").write_text("EXP\t^m\tFILE\t-bogus x\nEXP\t^n\tFILE\tn\n")
    told_by = run("pipeline", "import", str(main))
    assert told_by.exit_code == 1
    assert "../more.conf line 1: the option -bogus is unknown" in told_by.stderr
    assert "# more.conf:1: not translated: the option -bogus is unknown" in told_by.stdout
    rules = loaded(written(tmp_path, told_by.stdout)).rules
    assert [(rule.name, rule.select.ident) for rule in rules] == [
        ("pqact-1", "^a"), ("level-3-2", "^SDUS"), ("more-2", "^n"), ("more-2-2", "^n"), ("pqact-4", "^z"),
    ]  # fmt: skip


def test_a_file_that_includes_itself_or_is_missing_has_a_reason(tmp_path: Path) -> None:
    one, two = tmp_path / "one.conf", tmp_path / "two.conf"
    one.write_text("EXP\t^a\tFILE\ta\ninclude two.conf\ninclude none.conf\n")
    two.write_text("include ./one.conf\nEXP\t^b\tFILE\tb\n")
    made = translate(one.read_text(), path=one)
    assert made.rules == 2
    assert [(str(each), bool(each.hint)) for each in made.untranslated] == [
        ("two.conf line 1: the file './one.conf' includes itself", True),
        (f"line 3: {tmp_path / 'none.conf'} is not readable: No such file or directory", True),
    ]


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
