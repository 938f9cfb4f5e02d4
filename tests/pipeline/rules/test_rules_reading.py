"""Rule files: the values of each key, and the problem that an invalid value is reported with."""

import pickle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rulefile import PIPELINE, RULE, loaded, only, told, written

from headrace import Selection
from headrace.errors import ConfigError
from headrace.pipeline.rules import (
    AlertAction,
    ExecAction,
    FileAction,
    PipeAction,
    PipelineTerms,
    PublishAction,
    Rule,
    TableAction,
    check_rules,
    load_rules,
)
from headrace.toml.kinds import toml_lines

EIGHT_LINES = """\
[pipeline]
queue = "wx.queue"
[[rule]]
name = "hot"
select = "wx/text/metar"
decode = "metar"
sql = "select station, observed, temperature from decoded where temperature > 35"
table = "hot"
"""


def test_eight_lines_are_a_pipeline(tmp_path: Path) -> None:
    rules = loaded(written(tmp_path, EIGHT_LINES))
    assert rules.pipeline == PipelineTerms(
        name="rules", queue=tmp_path / "wx.queue", checkpoint=tmp_path / "rules.checkpoint", tables=tmp_path / "tables",
        files=tmp_path / "files",
    )  # fmt: skip
    (rule,) = rules.rules
    assert (rule.name, rule.select, rule.decode) == ("hot", Selection("wx/text/metar"), "metar")
    assert rule.table == (TableAction(path=str(tmp_path / "tables" / "hot")),)
    assert [name for name, _, _ in rule.actions()] == ["table"]


def test_every_key_is_understood(tmp_path: Path) -> None:
    text = """
        [pipeline]
        name = "upper-air"
        queue = "wx.queue"
        site = "tcp/127.0.0.1:7447?site=denver"
        from = "2h"
        trigger = "2s"
        max_products = 1000
        max_bytes = "1MiB"
        on_loss = "count"
        checkpoint = "c"
        tables = "t"
        files = "f"
        dead_letters = "bad"
        [spark]
        executor.memory = "2g"
        "spark.sql.shuffle.partitions" = 4
        spark.x = true
        [[rule]]
        name = "gusts"
        select = 'wx/text/** priority 5..'
        ident = '^(SA..)'
        origin = ["denver"]
        decode = "metar"
        sql = '''
            select window.start as begin, station, max(wind_gust) as gust, first(ident) as ident
            from decoded group by window(observed, '1 hour'), station'''
        watermark = "10min"
        watermark_column = "observed"
        enabled = false
        [rule.table]
        path = "gusts"
        format = "delta"
        partition_by = ["station"]
        compact = "1h"
        keep = "30d"
        columns = "grow"
        [[rule.file]]
        path = "{station}/{begin:%Y%m%d}.json"
        folder = "elsewhere"
        mode = "overwrite"
        content = "json"
        [[rule.file]]
        path = "{1}.txt"
        [rule.publish]
        feed = "derived/{station}"
        ident = "{station} {begin:%H}"
        content = "station"
        priority = 6
        queue = "wx.queue"
        [rule.alert]
        when = "gust > 25"
        feed = "alert/gust"
        ident = "{station}"
        message = "{station} {gust:.1}"
        priority = 7
        [[rule]]
        name = "raw"
        select = "wx/text/**"
        [rule.exec]
        command = ["cat", "-n", "x{ident}"]
        content = "none"
        folder = "."
        timeout = "5s"
        tries = 2
        pause = "500ms"
        [rule.pipe]
        command = ["/bin/cat"]
        content = "payload"
        remove = ["wmo", "controls"]
        framing = "length"
        timeout = "1min"
        tries = 1
        pause = "2s"
        idle = "1h"
    """
    rules = loaded(written(tmp_path, text))
    assert rules.pipeline == PipelineTerms(
        name="upper-air", queue=tmp_path / "wx.queue", site="tcp/127.0.0.1:7447?site=denver", start=7200.0, trigger=2.0,
        max_products=1000, max_bytes=1 << 20, on_loss="count", checkpoint=tmp_path / "c", tables=tmp_path / "t",
        files=tmp_path / "f", dead_letters="bad",
    )  # fmt: skip
    assert rules.spark == (
        ("spark.executor.memory", "2g"), ("spark.sql.shuffle.partitions", "4"), ("spark.x", "true"),
    )  # fmt: skip
    gusts, raw = rules.rules
    assert gusts.select == Selection("wx/text/**", ident="^(SA..)", origin="denver", priority=">=5")
    assert (gusts.watermark_s, gusts.watermark_column, gusts.enabled) == (600.0, "observed", False)
    assert rules.enabled == (raw,)
    assert gusts.table == (
        TableAction(path=str(tmp_path / "t" / "gusts"), format="delta", partition_by=("station",), compact_s=3600.0, keep_s=2592000.0, columns="grow"),
    )  # fmt: skip
    assert gusts.file == (
        FileAction(
            path="{station}/{begin:%Y%m%d}.json", folder=tmp_path / "elsewhere", mode="overwrite", content="json"
        ),
        FileAction(path="{1}.txt", folder=tmp_path / "f", content="json"),
    )
    assert gusts.publish == (
        PublishAction(
            feed="derived/{station}",
            ident="{station} {begin:%H}",
            content="station",
            priority=6,
            queue=tmp_path / "wx.queue",
        ),
    )
    assert gusts.alert == (
        AlertAction(when="gust > 25", feed="alert/gust", ident="{station}", message="{station} {gust:.1}", priority=7),
    )
    assert raw.exec == (
        ExecAction(
            command=("cat", "-n", "x{ident}"), content="none", folder=tmp_path, timeout_s=5.0, tries=2, pause_s=0.5
        ),
    )
    assert raw.pipe == (
        PipeAction(
            command=("/bin/cat",),
            content="payload",
            remove=("wmo", "controls"),
            framing="length",
            folder=tmp_path,
            timeout_s=60.0,
            tries=1,
            pause_s=2.0,
            idle_s=3600.0,
        ),
    )
    assert pickle.loads(pickle.dumps(rules)) == rules


def test_short_forms_mean_the_first_key(tmp_path: Path) -> None:
    text = (
        PIPELINE
        + RULE
        + 'file = "{feed}/{ident}"\npublish = "derived"\nexec = ["cat"]\npipe = ["cat", "-n"]\ntable = "t"\n'
    )
    (rule,) = loaded(written(tmp_path, text)).rules
    assert rule.file[0].path == "{feed}/{ident}"
    assert (rule.publish[0].feed, rule.publish[0].ident) == ("derived", "{ident|}")
    assert (rule.exec[0].command, rule.pipe[0].command) == (("cat",), ("cat", "-n"))
    assert {each.content for each in (*rule.file, *rule.publish, *rule.exec, *rule.pipe)} == {"payload"}


def test_rows_without_a_payload_are_written_as_json(tmp_path: Path) -> None:
    (rule,) = loaded(written(tmp_path, PIPELINE + RULE + 'decode = "metar"\nfile = "{station}.json"\n')).rules
    assert rule.file[0].content == "json"


def test_a_watermark_is_for_observed_or_for_created(tmp_path: Path) -> None:
    group = "group by window({0}, '1 hour')"
    decoded = f'decode = "metar"\nsql = "select count(*) as n from decoded {group.format("observed")}"\n'
    plain = f'sql = "select count(*) as n from products {group.format("created")}"\n'
    end = 'watermark = "10min"\ntable = "t"\n'
    assert loaded(written(tmp_path, PIPELINE + RULE + decoded + end)).rules[0].watermark_column == "observed"
    assert loaded(written(tmp_path, PIPELINE + RULE + plain + end)).rules[0].watermark_column == "created"


def test_a_program_beside_the_rules_has_its_whole_path(tmp_path: Path) -> None:
    (tmp_path / "decoder").write_text("#!/bin/sh\n")
    (tmp_path / "decoder").chmod(0o755)
    rules = loaded(written(tmp_path, PIPELINE + RULE + 'exec = ["./decoder", "-v"]\n'))
    assert rules.rules[0].exec[0].command == (str(tmp_path / "decoder"), "-v")


@pytest.mark.parametrize(
    ("lines", "place", "problem", "hint"),
    [
        ('tabel = "x"', "6: [[rule]] 1", "unknown key 'tabel'", "did you mean 'table'?"),
        ("[rule.file]\nname = 1\npath = 'x'", "7: [[rule]] 1 [rule.file]", "unknown key 'name'", "it belongs below [pipeline] or [pipeline.user] or [[rule]]"),
        ('[rule.file]\npath = "x"\nmod = 1', "8: [[rule]] 1 [rule.file]", "unknown key 'mod'", "did you mean 'mode'?"),
        ("file = 5", "6: [[rule]] 1 file", "5 is not an action", "write [rule.file], or in short file ="),
        ("alert = 'x'", "6: [[rule]] 1 alert", "'x' is not an action", "write [rule.alert], with its keys below it"),
        ("[rule.table]\nformat = 'csv'\npath = 'x'", "7: [[rule]] 1 [rule.table] format", "'csv' is unknown", '"delta"'),
        ("[[rule.file]]\npath='a'\n[[rule.file]]", "8: [[rule]] 1 [[rule.file]] 2 path", "the key is required", "write path ="),
        ("exec = 'cat'", "6: [[rule]] 1 exec", "'cat' is not a list", 'write it in brackets: ["cat"]'),
        ("exec = []", "6: [[rule]] 1 exec", "the command is empty", "name a program"),
        ("[rule.exec]\ncommand = ['cat']\ntimeout = 5", "8: [[rule]] 1 [rule.exec] timeout", "5 has no unit", '"60s"'),
        ("[rule.exec]\ncommand = ['cat']\ntimeout = '0s'", "8: [[rule]] 1 [rule.exec] timeout", "'0s' is out of range", "choose between"),
        ("file = '../x'", "6: [[rule]] 1 file", "the path '../x' has the part '..'", "separated by single slashes"),
        ("file = '/x'", "6: [[rule]] 1 file", "the path '/x' is absolute", "give folder"),
        ("file = 'a{1'", "6:10: [[rule]] 1 file", "a brace is unbalanced", "write {{ or }}"),
        ("publish = 'a b'", "6: [[rule]] 1 publish", "'a b' has the illegal level 'a b'", "without blanks"),
        ("table = '../x'", "6: [[rule]] 1 table", "'../x' is not the path of a table", "without .."),
        ("sql = 'select a b c'\ntable = 'x'", "6:19: [[rule]] 1 sql", "not SQL: ", "Spark SQL"),
        ("decode = 'metr'\ntable = 'x'", "6: [[rule]] 1 decode", "there is no decoder 'metr'", "did you mean 'metar'?"),
        ("decode = 'a b'\ntable = 'x'", "6: [[rule]] 1 decode", "'a b' is not a decoder", "module:function"),
        ("decode = 'nomodule:f'\ntable = 'x'", "6: [[rule]] 1 decode", "decoder 'nomodule:f': there is no module 'nomodule'", "PYTHONPATH"),
        ("table = 'x'\n[[rule]]\nname = 'a.errors'\nselect = 'x'\ntable = 'y'", "8: [[rule]] 2 name", "'a.errors' is not a name", "dashes or underscores"),
        ("table = 'x'\n[[rule]]\nname = 'State'\nselect = 'x'\ntable = 'y'", "8: [[rule]] 2 name", "'State' is reserved for the checkpoint", "another"),
        ("priority = 9\ntable = 'x'", "6: [[rule]] 1 priority", "9 is out of range", ""),
        ("ident = '('\ntable = 'x'", "6: [[rule]] 1 ident", "pattern '(' is not a regular expression: missing ): (", "RE2"),
        ("enabled = 'yes'\ntable = 'x'", "6: [[rule]] 1 enabled", "'yes' is neither true nor false", "without quotes"),
    ],
)  # fmt: skip
def test_an_invalid_key_of_a_rule_is_reported(tmp_path: Path, lines: str, place: str, problem: str, hint: str) -> None:
    found = only(written(tmp_path, f"{PIPELINE}{RULE}{lines}\n"))
    shown = str(found).removeprefix(f"{tmp_path / 'rules.toml'}:")
    assert shown.startswith(place)
    assert problem in shown
    assert hint in found.hint


@pytest.mark.parametrize(
    ("line", "place", "problem"),
    [
        ("trigger = 500", "3: [pipeline] trigger", "500 has no unit"),
        ("trigger = 'never'", "3: [pipeline] trigger", "'never' is not a length of time"),
        ("from = 'x'", "3: [pipeline] from", "'x' is not a start"),
        ("max_products = 0", "3: [pipeline] max_products", "0 is out of range"),
        ("max_bytes = 5", "3: [pipeline] max_bytes", "5 has no unit"),
        ("max_bytes = '1B'", "3: [pipeline] max_bytes", "'1B' is out of range"),
        ("site = 'host'", "3: [pipeline] site", "invalid endpoint 'host'"),
        ("checkpoint = 'rules.toml/x'", "3: [pipeline] checkpoint", "is not a folder"),
        ("tables = 'wx.queue/t'", "3: [pipeline] tables", "is inside the queue"),
        ("checkpoint = 'tables'", "3: [pipeline] checkpoint", "is also used for other files"),
        ("master = 'x'", "3: [pipeline]", "unknown key 'master'"),
        ("[spark]\nx = [1]", "4: [spark] x", "[1] is not a Spark setting"),
    ],
)
def test_an_invalid_key_of_a_pipeline_is_reported(tmp_path: Path, line: str, place: str, problem: str) -> None:
    found = only(written(tmp_path, f"{PIPELINE}{line}\n{RULE}table = 'x'\n"))
    shown = str(found).removeprefix(f"{tmp_path / 'rules.toml'}:")
    assert shown.startswith(place)
    assert problem in shown
    assert found.hint


def test_a_missing_queue_is_reported_with_the_remedy(tmp_path: Path) -> None:
    found = only(written(tmp_path, f'[pipeline]\nqueue = "none.queue"\n{RULE}table = "x"\n'))
    assert (found.line, found.key) == (2, "queue")
    assert "none.queue" in found.problem
    assert found.hint


def test_a_file_needs_a_source_and_a_rule(tmp_path: Path) -> None:
    assert told(written(tmp_path, "")) == ["1: [pipeline]: the table is missing", "1: [[rule]]: there is no rule"]
    assert told(written(tmp_path, "[pipeline]\ntrigger = 5\n" + RULE + 'table = "x"\n')) == [
        "1: [pipeline]: there is neither queue nor site to read from",
        "2: [pipeline] trigger: 5 has no unit",
    ]
    assert told(written(tmp_path, "[pipelin]\n" + RULE + 'table = "x"\n')) == [
        "1: unknown table 'pipelin'",
        "1: [pipeline]: the table is missing",
    ]
    assert told(tmp_path / "none.toml") == ["the file does not exist"]
    assert told(written(tmp_path, PIPELINE + "[rule]\nname = 'x'\n")) == ["3: [[rule]]: it is not a list of tables"]
    assert "not TOML" in only(written(tmp_path, PIPELINE + "queue = 1\n")).problem


def test_all_problems_are_reported_at_once_in_the_order_of_the_file(tmp_path: Path) -> None:
    text = """\
[pipeline]
queue = "wx.queue"
trigger = 1
[[rule]]
name = "a b"
select = "wx/** idnt ~ x"
file = "../x"
[[rule]]
name = "m"
select = "wx/**"
decode = "metar"
sql = "select staton, max(wind_gust) as gust from decoded group by station order by 1"
[rule.table]
path = "m"
formt = "delta"
partition_by = ["station", "station"]
[[rule]]
name = "M"
select = "wx/**"
exec = ["nosuchprogram", "{1}"]
"""
    lines = [int(each.split(":")[0]) for each in told(written(tmp_path, text))]
    assert lines == [3, 5, 6, 7, 12, 12, 12, 15, 16, 18, 20, 20]


def test_loading_a_file_with_mistakes_raises_with_all_of_them(tmp_path: Path) -> None:
    path = written(tmp_path, PIPELINE + RULE + "x = 1\ny = 2\ntable = 't'\n")
    with pytest.raises(ConfigError, match=r"unknown key 'x' \(and 1 more problem\)") as raised:
        load_rules(path)
    assert len(raised.value.problems) == 2
    assert "headrace pipeline check" in raised.value.hint


# --- rules in Python ------------------------------------------------------------------------------

MODULE = """\
from headrace import Selection
from headrace.pipeline.rules import ExecAction, FileAction, PipelineTerms, Rule, TableAction

pipeline = PipelineTerms(queue="wx.queue", trigger=2.0)
spark = {"executor.memory": "1g"}


def rules():
    return [
        Rule(name=f"text-{site}", select=Selection("wx/text/**", origin=site), file=FileAction(path="{feed}.txt"),
             exec=[ExecAction(command=["cat"], timeout_s=5.0)])
        for site in ("a", "b")
    ]
"""


def test_rules_may_be_written_in_python(tmp_path: Path) -> None:
    rules = loaded(written(tmp_path, MODULE, "rules_py.py"))
    assert rules.pipeline.queue == tmp_path / "wx.queue"
    assert (rules.pipeline.trigger, rules.spark) == (2.0, (("spark.executor.memory", "1g"),))
    assert [rule.name for rule in rules.rules] == ["text-a", "text-b"]
    assert rules.rules[0] == Rule(
        name="text-a", select=Selection("wx/text/**", origin="a"),
        file=(FileAction(path="{feed}.txt", folder=tmp_path / "files", content="payload"),),
        exec=(ExecAction(command=("cat",), timeout_s=5.0, folder=tmp_path, content="payload"),),
    )  # fmt: skip


def test_rules_in_python_say_the_same_as_their_toml(tmp_path: Path) -> None:
    code = MODULE.split("spark =")[0] + (
        "def rules():\n    return [Rule(name='hot', select='wx/text/metar', decode='metar', table=TableAction(path='hot'),\n"
        "        sql='select station, observed, temperature from decoded where temperature > 35')]\n"
    )
    python = loaded(written(tmp_path, code.replace(", trigger=2.0", ""), "python.py"))
    assert python.rules == loaded(written(tmp_path, EIGHT_LINES)).rules


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (("timeout_s=5.0", "timeout_s=-5.0"), ": [[rule]] 1 [[rule.exec]] 1 timeout: "),
        (('"{feed}.txt"', '"{fed}.txt"'), "[[rule]] 2 [[rule.file]] 1 path: the rows have no column 'fed'"),
        (('f"text-{site}"', '"same"'), "[[rule]] 2 name: 'same' is already the name of [[rule]] 1"),
        (('queue="wx.queue"', "queue=5"), "[pipeline] queue: "),
        (("def rules", "def other"), "it has no function rules() that returns a list of Rule"),
        (("    return [", "    return 5\n    ["), "it has no function rules() that returns a list of Rule"),
        (("pipeline = ", "other = "), "it has no pipeline = PipelineTerms(…)"),
        (("    return [", "    1 / 0\n    return ["), "rules_py.py:9: it fails: ZeroDivisionError"),
        (("def rules()", "def rules("), "rules_py.py:8: it fails: SyntaxError"),
    ],
)
def test_problems_in_python_name_the_rule_and_the_key(tmp_path: Path, change: tuple[str, str], expected: str) -> None:
    code = MODULE.replace(*change)
    assert code != MODULE
    path = written(tmp_path, code, "rules_py.py")
    with pytest.raises(ConfigError) as raised:
        load_rules(path)
    assert any(expected in str(problem) for problem in raised.value.problems), raised.value


def test_a_user_defined_decoder_may_lie_beside_the_rules(tmp_path: Path) -> None:
    (tmp_path / "own_beside.py").write_text("def words(product):\n    yield {'word': product['ident']}\n")
    text = PIPELINE + RULE + 'decode = "own_beside:words"\nschema = "word string"\nfile = "{word}/{feed}.json"\n'
    assert told(written(tmp_path, text)) == []
    assert "no column 'wrd'" in only(written(tmp_path, text.replace("{word}", "{wrd}"))).problem
    assert only(written(tmp_path, text.replace("word string", "word strng"))).key == "schema"


# --- any content ----------------------------------------------------------------------------------

KEYS = ["name", "select", "decode", "schema", "sql", "watermark", "watermark_column", "ident", "file", "table", "publish", "exec", "pipe", "alert", "path", "feed", "command", "when", "content", "x"]  # fmt: skip
LEAVES = st.sampled_from(["", "a", "wx/**", "metar", "{1}", "{station}", "select station from decoded", "10min", "..", "(", "{", "observed", "json", 0, -1, 2.5, True, [], {}])  # fmt: skip
VALUES = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=3), max_leaves=4)  # fmt: skip


@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rules=st.lists(st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=6), max_size=3), pipeline=VALUES)
def test_any_content_is_checked_without_an_exception(tmp_path: Path, rules: Any, pipeline: Any) -> None:
    blocks = [toml_lines({"pipeline": pipeline}), *(["[[rule]]", *toml_lines(rule)] for rule in rules)]
    path = written(tmp_path, "\n".join(line for block in blocks for line in block) + "\n")
    for problem in check_rules(path):
        assert problem.problem
        assert problem.hint
        assert problem.line
