"""Which rules share a query, and where a rule continues that leaves one; without Spark."""

from pathlib import Path
from typing import Any

import pytest

from headrace import Selection
from headrace.errors import PipelineError
from headrace.pipeline.rules.rule import FileAction, Rule, TableAction
from headrace.pipeline.run.checkpoint import position_of
from headrace.pipeline.run.sharing import (
    ALONE_MAX,
    Query,
    Record,
    arranged,
    covering,
    is_plain,
    load_record,
    save_record,
)

MANY = ALONE_MAX + 4


def filing(name: str, select: str = "wx/text", **more: Any) -> Rule:
    return Rule(name=name, select=Selection.parse(select), file=(FileAction(path="{ident}"),), **more)


def tabled(name: str, select: str = "wx/text", **more: Any) -> Rule:
    return Rule(name=name, select=Selection.parse(select), table=(TableAction(path=name),), **more)


def arrange(rules: list[Rule], record: Record, at: int | None = None, alone: str = "") -> dict[str, list[str]]:
    """The rules of each query; every query is at the same position."""
    return {query.name: [rule.name for rule in query.rules] for query in queries(rules, record, at, alone)}


def queries(rules: list[Rule], record: Record, at: int | None = None, alone: str = "") -> list[Query]:
    return arranged(rules, record, lambda name: at, lambda name: name == alone)


def test_in_a_small_file_every_rule_has_a_query() -> None:
    record = Record()
    assert len(arrange([filing(f"r{n}") for n in range(ALONE_MAX)], record)) == ALONE_MAX
    assert record == Record()


def test_rules_that_only_pass_products_on_share_one_query_and_others_share_by_selection() -> None:
    plain = [filing(f"f{n}", f"wx/text/{n}") for n in range(MANY)]
    same = [tabled("t1", "wx/a"), tabled("t2", "wx/a", decode="text"), tabled("t3", "wx/b")]
    counting = tabled("t4", "wx/a", watermark_s=60.0)
    made = queries([*plain, *same, counting], Record(), alone="f3")
    assert {query.name: len(query.rules) for query in made} == {
        "shared.1": MANY - 1, "f3": 1, "shared.2": 2, "t3": 1, "t4": 1,
    }  # fmt: skip
    plain_feeds = "|".join(sorted(f"wx/text/{n}" for n in range(MANY) if n != 3))
    assert [str(query.select) for query in made] == [plain_feeds, "wx/text/3", "wx/a", "wx/b", "wx/a"]


def test_new_rules_get_a_new_query_so_that_they_start_where_the_pipeline_says() -> None:
    record, rules = Record(), [filing(f"r{n}") for n in range(MANY)]
    arrange(rules, record)
    added = [filing("new1"), filing("new2")]
    found = queries([*rules, *added], record, at=700)
    assert [(query.name, len(query.rules), query.start) for query in found] == [
        ("shared.1", MANY, None), ("shared.2", 2, None),
    ]  # fmt: skip


def test_a_rule_that_is_disabled_and_enabled_again_continues_where_its_query_was() -> None:
    record, rules = Record(), [filing(f"r{n}") for n in range(MANY)]
    arrange(rules, record)
    assert arrange(rules[1:], record, at=700) == {"shared.1": [rule.name for rule in rules[1:]]}
    (back, _) = queries(rules, record, at=900)
    assert (back.name, back.start) == ("r0", 700)
    assert queries(rules, record, at=950)[0].start == 700, "its query may not have written a checkpoint yet"


def test_rules_that_come_back_from_different_positions_do_not_share() -> None:
    record, rules = Record(), [filing(f"r{n}") for n in range(MANY)]
    arrange(rules, record)
    arrange(rules[2:], record, at=700)
    arrange(rules[4:], record, at=800)
    found = queries(rules, record, at=900)
    assert [([rule.name for rule in query.rules][:2], query.start) for query in found] == [
        (["r0", "r1"], 700), (["r2", "r3"], 800), (["r4", "r5"], None),
    ]  # fmt: skip


def test_a_rule_that_no_longer_fits_leaves_its_query_with_its_position() -> None:
    record, rules = Record(), [filing(f"r{n}") for n in range(MANY)]
    arrange(rules, record)
    changed = [filing("r0", sql="select * from products"), *rules[1:]]
    (first, second) = queries(changed, record, at=700)
    assert (first.name, first.start, second.name, len(second.rules)) == ("r0", 700, "shared.1", MANY - 1)


def test_a_query_that_never_read_anything_leaves_the_start_to_the_pipeline() -> None:
    record, rules = Record(), [filing(f"r{n}") for n in range(MANY)]
    arrange(rules, record)
    arrange(rules[1:], record, at=None)
    assert queries(rules, record)[0].start is None


def test_a_query_without_rules_is_forgotten_and_its_name_is_not_used_again() -> None:
    record = Record()
    arrange([filing(f"r{n}") for n in range(MANY)], record)
    assert list(arrange([filing(f"s{n}") for n in range(MANY)], record, at=5)) == ["shared.2"]


@pytest.mark.parametrize(
    ("select", "plain"),
    [
        ("wx/text", True), ('wx/** ident ~ "^SA" ident !~ "X" priority 5..', True), ("wx/** where level > 3", False),
        ("wx/** created 2026-01-01..", False),
    ],
)  # fmt: skip
def test_selections_that_rows_cannot_decide_exactly_are_left_to_the_queue(select: str, plain: bool) -> None:
    assert is_plain(filing("a", select)) == plain


@pytest.mark.parametrize(
    ("selects", "cover"),
    [
        (["wx/text"], "wx/text"), (["wx/text", "wx/text/metar"], "wx/text|wx/text/metar"),
        (["wx/a/b", "wx/*/b"], "wx/*/b"), (["wx/a|tel/b", "wx/c"], "tel/b|wx/a|wx/c"), (["wx/a", "**"], "**"),
        (["wx/text/a priority 5..", "wx/text/a"], "wx/text/a"), ([f"wx/t/{n}|wx/t" for n in range(1000)], "wx/t/**"),
        ([f"wx/t/{n}" for n in range(1000)] + ["wx/*/x"], "wx/**"), ([f"{n}/a" for n in range(1000)], "**"),
    ],
)  # fmt: skip
def test_a_shared_query_reads_the_feeds_of_all_its_rules(selects: list[str], cover: str) -> None:
    assert str(covering(Selection.parse(select) for select in selects)) == cover


def test_the_record_survives_and_damage_is_reported(tmp_path: Path) -> None:
    record = Record()
    save_record(tmp_path, record)
    assert list(tmp_path.iterdir()) == []
    arrange([filing(f"r{n}") for n in range(MANY)], record)
    save_record(tmp_path, record)
    assert load_record(tmp_path) == record
    (tmp_path / "queries.json").write_bytes(b"{")
    with pytest.raises(PipelineError, match="is damaged"):
        load_record(tmp_path)


def test_the_position_of_a_query_is_the_end_of_its_last_committed_batch(tmp_path: Path) -> None:
    assert position_of(tmp_path) is None
    for folder in ("offsets", "commits"):
        (tmp_path / folder).mkdir()
    for batch in range(3):
        (tmp_path / "offsets" / str(batch)).write_text(f'v1\n{{}}\n{{"queue": "q", "sequence": {100 * batch}}}')
    for batch in range(2):
        (tmp_path / "commits" / str(batch)).write_text("v1\n{}")
    assert position_of(tmp_path) == 100
    (tmp_path / "offsets" / "1").write_text("v1")
    with pytest.raises(PipelineError, match="offsets/1 is not readable"):
        position_of(tmp_path)
