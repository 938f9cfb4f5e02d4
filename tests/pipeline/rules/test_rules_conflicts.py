"""Contradictions in a rule file, and SQL that a stream does not support."""

import sys
from pathlib import Path

import pytest
from rulefile import PIPELINE, RULE, loaded, only, told, written

from headrace import Queue

METAR = RULE + 'decode = "metar"\n'


@pytest.mark.parametrize(
    ("lines", "place", "problem", "hint"),
    [
        ("", "3: [[rule]] 1", "the rule has no action", "give it one"),
        ("file = '{1}'", "6:9: [[rule]] 1 file", "the selection has no ident pattern", "ident ="),
        ("ident = '^(a)(b)'\nfile = 'x/{3}'", "7:11: [[rule]] 1 file", "has 2 groups, and not 3", "count its parentheses"),
        ("ident = '^a'\nfile = 'x/{1}'", "7:11: [[rule]] 1 file", "has no groups, and not 1", ""),
        ("ident = '^(?P<feed>a)'\nfile = '{feed}'", "7:9: [[rule]] 1 file", "is both a group of the ident and a column", "another name"),
        ("file = '{time(x):%Y}'", "6:9: [[rule]] 1 file", "there is no group x", ""),
        ("file = '{idnt}'", "6:9: [[rule]] 1 file", "the rows have no column 'idnt'", "did you mean {ident}?"),
        ("file = '{feed:%Y}'", "6:9: [[rule]] 1 file", "feed is string", "leave the format out"),
        ("file = '{created:04}'", "6:9: [[rule]] 1 file", "created is a time", "write %Y%m%d"),
        ("file = '{created:lower}'", "6:9: [[rule]] 1 file", "created is a time", ""),
        ("[rule.file]\npath = 'x'\nmode = 'each'", "8: [[rule]] 1 [rule.file] mode", "every row would have the same path", "{sequence}"),
        ("[rule.file]\npath = 'x'\ncontent = 'none'", "8: [[rule]] 1 [rule.file] content", "the output would be empty", ""),
        ("[rule.file]\npath = 'x'\ncontent = 'created'", "8: [[rule]] 1 [rule.file] content", "neither text nor bytes", "json"),
        ("[rule.file]\npath = 'x'\ncontent = 'statn'", "8: [[rule]] 1 [rule.file] content", "no column 'statn'", "columns are"),
        ("[rule.file]\npath = 'x'\ncontent = 'json'\nremove = ['wmo']", "9: [[rule]] 1 [rule.file] remove", "it applies to payloads", ""),
        ("sql = 'select ident, payload from products'\n[rule.pipe]\ncommand = ['cat']\nmetadata = 'ldm'", "9: [[rule]] 1 [rule.pipe] metadata", "the rows have no column 'signature'", "select it too"),
        ("[rule.table]\npath = 'x'\npartition_by = ['statn']", "8: [[rule]] 1 [rule.table] partition_by", "no column 'statn'", ""),
        ("[rule.table]\npath = 'x'\ncompact = 60", "8: [[rule]] 1 [rule.table] compact", "60 has no unit", "1h"),
        ("[rule.table]\npath = 'x'\nkeep = 30", "8: [[rule]] 1 [rule.table] keep", "30 has no unit", "30d"),
        ("[rule.table]\npath = 'x'\nkeep = '1min'", "8: [[rule]] 1 [rule.table] keep", "'1min' is out of range", "1h"),
        ("[rule.file]\npath = 'x'\nmode = 'overwrite'\nkeep = '30d'", "9: [[rule]] 1 [rule.file]", "unknown key 'keep'", "only tables have it"),
        ("[[rule.table]]\npath = 'x'\n[[rule.table]]\npath = 'x/y'", "9: [[rule]] 1 [[rule.table]] 2 path", "lie one in the other", "beside it"),
        ("table = 'dead_letters/mine'", "6: [[rule]] 1 table", "lie one in the other", "beside it"),
        ("[rule.table]\npath = 'x'\ncompact = '0s'", "8: [[rule]] 1 [rule.table] compact", "'0s' is out of range", "1s"),
        ("schema = 'a int'\ntable = 'x'", "6: [[rule]] 1 schema", "there is nothing to decode", "leave it out"),
        ("watermark = '1min'\ntable = 'x'", "6: [[rule]] 1 watermark", "it has no effect without sql", "give sql"),
        ("every = 10\ntable = 'x'", "6: [[rule]] 1 every", "counts products", "sequence % 10 = 0"),
        ("max_age_s = 10\ntable = 'x'", "6: [[rule]] 1 max_age_s", "depends on the clock", "current_timestamp()"),
        ("exec = ['nosuchprogram']", "6: [[rule]] 1 exec", "there is no program 'nosuchprogram'", "PATH"),
        ("exec = ['./nosuchprogram']", "6: [[rule]] 1 exec", "there is no program './nosuchprogram'", ""),
        ("exec = ['{ident}']", "6: [[rule]] 1 exec", "the program itself comes from products", ""),
        ("pipe = ['cat', '{idnt}']", "6:17: [[rule]] 1 pipe", "no column 'idnt'", ""),
        ("publish = 'wx/text/metar'", "6: [[rule]] 1 publish", "would never end", "choose a feed"),
        ("[rule.alert]\nwhen = 'priority > 3'\nfeed = 'wx/text/metar'", "8: [[rule]] 1 [rule.alert] feed", "never end", ""),
        ("[rule.alert]\nwhen = 'prio > 3'\nfeed = 'x'", "7:9: [[rule]] 1 [rule.alert] when", "there is no column 'prio'", "priority"),
        ("[rule.alert]\nwhen = 'a > 3 limit 5'\nfeed = 'x'", "7: [[rule]] 1 [rule.alert] when", "more than a condition", ""),
        ("[rule.publish]\nfeed = 'x'\nqueue = 'wx.queue'\nsite = 'tcp/h:1'", "9: [[rule]] 1 [rule.publish] site", "queue is given too", ""),
        ("table = 'dead_letters'", "6: [[rule]] 1 table", "is already written by the dead letters", ""),
        ("[[rule.table]]\npath = 'x'\n[[rule.table]]\npath = 'x'", "9: [[rule]] 1 [[rule.table]] 2 path", "is already written by [[rule]] 1", ""),
    ],
)  # fmt: skip
def test_a_contradiction_in_a_rule_is_reported_with_its_place_and_remedy(
    tmp_path: Path, lines: str, place: str, problem: str, hint: str
) -> None:
    found = only(written(tmp_path, f"{PIPELINE}{RULE}{lines}\n"))
    shown = str(found).removeprefix(f"{tmp_path / 'rules.toml'}:")
    assert shown.startswith(place + ":"), shown
    assert problem in shown
    assert hint in found.hint


@pytest.mark.parametrize(
    ("sql", "column", "problem", "hint"),
    [
        ("select staton from decoded", 8, "there is no column 'staton'", "did you mean station?"),
        ("select d.staton from decoded d", 8, "there is no column 'staton'", "did you mean station?"),
        ("select station from decodd", 21, "there is no table 'decodd' here", "select from decoded"),
        ("select station from x.decoded", 21, "there is no table 'x.decoded' here", ""),
        ("with a as (select station s from decoded) select t from a", 50, "there is no column 't'", "columns are: s"),
        ("select station, from decoded", 15, "a column is missing after the comma", ""),
        ("select station from decoded order by station", 38, "sorting needs an end", "when you read the table"),
        (
            "select row_number() over (partition by station order by observed) n from decoded",
            8,
            "over (…) needs all rows",
            "",
        ),
        (
            "select station, count(*) n from decoded group by station",
            None,
            "nothing tells when a group is complete",
            "watermark",
        ),
        ("select distinct station from decoded", None, "nothing tells when a group is complete", "watermark"),
        ("select count(*) n from decoded", None, "nothing tells when a group is complete", "watermark"),
        ("drop table x", None, "this is DROP, not a query", ""),
        ("select 1; select 2", None, "the text has 2 statements", ""),
        ("select 'abc", None, "a quote or a comment is not closed", ""),
        (
            "select ident from products",
            19,
            "there is no table 'products' here",
            "select from decoded, which has their columns too",
        ),
    ],
)
def test_invalid_sql_is_reported_with_its_column(
    tmp_path: Path, sql: str, column: int | None, problem: str, hint: str
) -> None:
    found = only(written(tmp_path, f'{PIPELINE}{METAR}sql = "{sql}"\ntable = "t"\n'))
    assert problem in found.problem
    assert hint in found.hint
    assert found.column == (None if column is None else column + 7)


@pytest.mark.parametrize(
    "sql",
    [
        "select * from decoded",
        "select d.*, d.wind_gust * 2 as g2, g2 + 1 as g3 from decoded d where wind_gust > 5",
        "select STATION, explode(sky) as layer, layer.base from decoded",
        "select station, transform(sky, x -> x.cover) as covers, sky[0].base as base from decoded",
        "select station, case when wind_gust > 5 then 'windy' end as word, feed, ident, origin from decoded",
        "with a as (select station, observed from decoded where temperature > 3) select * from a where station like 'K%'",
        "select properties['level'] as level, properties.x as x, station from decoded",
        "select station from decoded union all select ident from decoded",
        "select station, (select max(x) from (values (1)) v(x)) as m from decoded",
        "select station, w from decoded lateral view explode(weather) t as w",
    ],
)
def test_sql_that_spark_understands_is_accepted(tmp_path: Path, sql: str) -> None:
    problems = told(written(tmp_path, f'{PIPELINE}{METAR}sql = """{sql}"""\ntable = "t"\n'))
    assert [each for each in problems if "no column" in each or "no table" in each or "not SQL" in each] == []


def test_decoded_needs_a_decoder(tmp_path: Path) -> None:
    found = only(written(tmp_path, f'{PIPELINE}{RULE}sql = "select ident from decoded"\ntable = "t"\n'))
    assert found.hint == "give decode, or select from products"


@pytest.mark.parametrize(
    ("group", "more", "key", "problem"),
    [
        ("station", "", "sql", "the groups never end"),
        (
            "window(observed, '1 hour'), station",
            'watermark_column = "station"\n',
            "watermark_column",
            "'station' is string, not a time",
        ),
        (
            "window(observed, '1 hour'), station",
            'watermark_column = "x"\n',
            "watermark_column",
            "decoded has no column 'x'",
        ),
        ("window(created, '1 hour'), station", 'watermark_column = "observed"\n', "sql", "the groups never end"),
    ],
)
def test_a_watermark_must_be_about_the_groups(tmp_path: Path, group: str, more: str, key: str, problem: str) -> None:
    sql = f'sql = "select station, count(*) as n from decoded group by {group}"\nwatermark = "10min"\n'
    found = only(written(tmp_path, f'{PIPELINE}{METAR}{sql}{more}table = "t"\n'))
    assert found.key == key
    assert problem in found.problem


def test_a_watermark_without_a_column_of_times_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "own_times.py").write_text("def words(product):\n    yield {}\n")
    text = f'{PIPELINE}{RULE}decode = "own_times:words"\nschema = "word string"\nwatermark = "10min"\ntable = "t"\n'
    sql = "sql = \"select word, count(*) as n from decoded group by window(created, '1 hour'), word\"\n"
    path = written(tmp_path, text.replace('table = "t"\n', sql + 'table = "t"\n'))
    found = only(path)
    assert found.key == "watermark"
    assert "has no 'observed'" in found.problem
    assert told(written(tmp_path, path.read_text().replace("table =", 'watermark_column = "created"\ntable ='))) == []


def test_the_columns_of_a_query_are_those_that_templates_may_name(tmp_path: Path) -> None:
    text = f'{PIPELINE}{METAR}ident = "(K...)"\nsql = "select station, temperature as t from decoded"\n'
    assert told(written(tmp_path, text + 'file = "{station}-{t:.1}"\n')) == []
    assert "no column 'temperature'" in only(written(tmp_path, text + 'file = "{temperature}"\n')).problem
    assert "needs the column 'ident'" in only(written(tmp_path, text + 'file = "{1}"\n')).problem
    assert "no column 'feed'" in only(written(tmp_path, text + 'file = "{feed.2}"\n')).problem
    assert "no column 'ident'" in only(written(tmp_path, text + 'publish = "x"\n')).problem
    assert told(written(tmp_path, text.replace("as t", "as t, ident") + 'publish = "x/{1}"\n')) == []


def test_sql_with_random_values_is_not_published(tmp_path: Path) -> None:
    text = f'{PIPELINE}{METAR}sql = "select ident, rand() as r from decoded"\n'
    assert "when a batch is repeated" in only(written(tmp_path, text + 'publish = "x"\n')).problem
    assert told(written(tmp_path, text + 'table = "x"\n')) == []


def test_rules_have_different_names_and_tables(tmp_path: Path) -> None:
    other = RULE.replace('"a"', '"A"')
    text = f'{PIPELINE}{RULE}table = "t"\n{other}table = "./t"\n'
    assert told(written(tmp_path, text)) == [
        "8: [[rule]] 2 name: 'A' is already the name of [[rule]] 1",
        f"10: [[rule]] 2 table: {tmp_path / 'tables' / 't'} is already written by [[rule]] 1",
    ]


def test_a_rule_that_selects_by_more_than_the_feed_may_publish_on_it(tmp_path: Path) -> None:
    loaded(written(tmp_path, f"{PIPELINE}{RULE}ident = '^S'\npublish = 'wx/text/metar'\n"))


@pytest.mark.parametrize(
    ("target", "is_own"),
    [("queue = 'wx.queue'", True), ("queue = 'other.queue'", False), ("site = 'tcp/other:7447'", False)],
)
def test_a_rule_may_publish_on_its_own_feeds_to_another_queue(tmp_path: Path, target: str, is_own: bool) -> None:
    Queue.create(tmp_path / "other.queue", size="16MiB").close()
    text = f"{PIPELINE}{RULE}[rule.publish]\nfeed = 'wx/text/metar'\n{target}\n"
    looping = ["7: [[rule]] 1 [rule.publish] feed: the rule selects 'wx/text/metar' itself, and would never end"]
    assert told(written(tmp_path, text)) == (looping if is_own else [])


def test_delta_tables_need_their_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path, f"{PIPELINE}{RULE}[rule.table]\npath = 't'\nformat = 'delta'\n")
    assert told(path) == []
    monkeypatch.setitem(sys.modules, "deltalake", None)
    assert only(path).hint == "pip install 'headrace[delta]'"


@pytest.mark.parametrize(
    ("lines", "place", "problem", "hint"),
    [
        ("otherwise = true\nfile = 'x'", "6: [[rule]] 1 otherwise", "there is no enabled rule above it", "leave it out"),
        ("discard = true", "6: [[rule]] 1 discard", "it has no effect without a rule with otherwise below it", ""),
        ("where = 'a > 3'\nfile = 'x'\n[[rule]]\nname = 'b'\nselect = '**'\notherwise = true\nfile = 'y'",
         "11: [[rule]] 2 otherwise", "the rule 'a' above it selects by 'where'", "move 'a' below this rule"),
        ("discard = true\nfile = 'x'\n[[rule]]\nname = 'b'\nselect = '**'\notherwise = true\nfile = 'y'",
         "6: [[rule]] 1 discard", "the rule has the action 'file'", "leave one of them out"),
        ("[rule.pipe]\ncommand = ['cat']\nmetadata = 'ldm-xpipe'\ncontent = 'none'", "9: [[rule]] 1 [rule.pipe] content",
         "'ldm-xpipe' frames contents, and there is none", "leave content out"),
        ("[rule.pipe]\ncommand = ['cat']\nprograms = 3", "8: [[rule]] 1 [rule.pipe]", "unknown key 'programs'",
         "write it into [pipeline]"),
    ],
)  # fmt: skip
def test_keys_that_contradict_other_rules_are_reported(
    lines: str, place: str, problem: str, hint: str, tmp_path: Path
) -> None:
    found = only(written(tmp_path, f"{PIPELINE}{RULE}{lines}\n"))
    assert place in str(found)
    assert problem in str(found)
    assert hint in found.hint
