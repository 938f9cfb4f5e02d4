"""The publish and alert actions: each row becomes one product, and invalid rows are dead letters."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from acting import context_of, letters_in

from headrace import Queue, Selection
from headrace.errors import PipelineError
from headrace.pipeline.actions import Counts, DeadLetters, performer
from headrace.pipeline.actions.prepared import Recipe, with_valid_text
from headrace.pipeline.rules import AlertAction, PublishAction

Make = Callable[..., Queue]


def rows(spark: Any, text: str) -> Any:
    return spark.sql(f"select {text} from range(6)")


def test_rows_are_put_once(spark: Any, tmp_path: Path, make_queue: Make) -> None:
    queue = make_queue()
    action = PublishAction(feed="wx/derived/{station:lower}", ident="{station} {id:03}", content="json", priority=5)
    made = performer(action, "publish-0", None, DeadLetters(tmp_path / "dead"))
    frame = rows(spark, "id, if(id % 2 = 0, 'KDEN', 'KBOU') as station, cast(null as string) as text")
    for _ in range(2):
        assert made.perform(frame, context_of(tmp_path, queue=str(queue.path))) == Counts(6)
    products = list(queue.read_batch("oldest"))
    assert sorted((p.feed, p.ident, bytes(p.payload), p.priority) for p in products) == sorted(
        (f"wx/derived/{s.lower()}", f"{s} {n:03}", b'{"id":%d,"station":"%s","text":null}' % (n, s.encode()), 5)
        for n in range(6) for s in [("KDEN", "KBOU")[n % 2]]
    )  # fmt: skip
    made.perform(frame, context_of(tmp_path, queue=str(queue.path), application="another"))
    assert len(queue.read_batch("oldest")) == 12, "products of another pipeline are not duplicates"


def test_equal_rows_of_different_products_are_put_separately(spark: Any, tmp_path: Path, make_queue: Make) -> None:
    queue = make_queue()
    made = performer(PublishAction(feed="wx/x", ident="i", content="text"), "p", None, DeadLetters(tmp_path / "dead"))
    frame = rows(spark, "id as sequence, 'same' as text")
    made.perform(frame, context_of(tmp_path, queue=str(queue.path)))
    assert [(p.ident, bytes(p.payload)) for p in queue.read_batch("oldest")] == [("i", b"same")] * 6


def test_rows_with_invalid_products_are_dead_letters(spark: Any, tmp_path: Path, make_queue: Make) -> None:
    queue = make_queue(size="4MiB")
    made = performer(
        PublishAction(feed="wx/{f}", ident="{i}", content="text"), "p", None, DeadLetters(tmp_path / "dead")
    )
    frame = rows(
        spark,
        """id as sequence, if(id = 1, null, if(id = 2, '@x', 'ok')) as f,
                           if(id = 3, repeat('x', 2000), 'i') as i, if(id = 4, repeat('x', 3000000), 't') as text""",
    )
    for _ in range(2):
        assert made.perform(frame, context_of(tmp_path, queue=str(queue.path))) == Counts(2, failed=4)
    told = {row["sequence"]: row["error"] for row in letters_in(tmp_path / "dead")}
    assert set(told) == {1, 2, 3, 4}
    assert "missing" in told[1]
    assert "the queue allows" in told[4]
    assert len(queue.read_batch("oldest")) == 2


def test_a_product_without_an_ident_is_published_without_one(spark: Any, tmp_path: Path, make_queue: Make) -> None:
    queue = make_queue()
    made = performer(PublishAction(feed="wx/x", content="text"), "p", None, DeadLetters(tmp_path / "dead"))
    frame = rows(spark, "id as sequence, if(id = 0, '', concat('i', id)) as ident, 't' as text")
    assert made.perform(frame, context_of(tmp_path, queue=str(queue.path))) == Counts(6)
    assert sorted(product.ident for product in queue.read_batch("oldest")) == ["", "i1", "i2", "i3", "i4", "i5"]


def test_an_alert_is_put_where_its_condition_holds(spark: Any, tmp_path: Path, make_queue: Make) -> None:
    queue = make_queue()
    action = AlertAction(when="gust > 3", feed="wx/alert", ident="{station}", message="{station}: gust {gust:.1} m/s")
    made = performer(action, "alert-0", None, DeadLetters(tmp_path / "dead"))
    for _ in range(2):
        assert made.perform(
            rows(spark, "concat('K', id) as station, id * 1.0d as gust"), context_of(tmp_path, queue=str(queue.path))
        ) == Counts(2)
    assert sorted((p.ident, bytes(p.payload), p.priority) for p in queue.read_batch("oldest")) == [
        ("K4", b"K4: gust 4.0 m/s", 6), ("K5", b"K5: gust 5.0 m/s", 6),
    ]  # fmt: skip


def test_products_may_go_to_another_queue(spark: Any, tmp_path: Path, make_queue: Make) -> None:
    one, other = make_queue("one"), make_queue("other")
    action = PublishAction(feed="wx/x", ident="{id}", content="json", queue=other.path)
    made = performer(action, "p", None, DeadLetters(tmp_path / "dead"))
    assert made.perform(rows(spark, "id"), context_of(tmp_path, queue=str(one.path))) == Counts(6)
    assert (len(one.read_batch("oldest")), len(other.read_batch("oldest"))) == (0, 6)


def test_a_queue_that_stores_duplicates_is_refused(spark: Any, tmp_path: Path, make_queue: Make) -> None:
    queue = make_queue(dedup="none")
    made = performer(PublishAction(feed="wx/x", ident="i", content="json"), "p", None, DeadLetters(tmp_path / "dead"))
    with pytest.raises(PipelineError, match="keeps duplicates"):
        made.perform(rows(spark, "id"), context_of(tmp_path, queue=str(queue.path)))


STRANGE = {
    "time": "if(id = 1, timestamp_micros(4611686018427387904), timestamp_seconds(id))",
    "day": "if(id = 1, date_from_unix_date(99999999), date_from_unix_date(0))",
    "list": "array(if(id = 1, timestamp_seconds(999999999999), timestamp_seconds(0)))",
    "map": "map('a', named_struct('t', if(id = 1, timestamp_seconds(-999999999999), timestamp_seconds(0))))",
}


@pytest.mark.parametrize("strange", STRANGE.values(), ids=STRANGE)
def test_a_time_outside_the_range_of_python_is_a_dead_letter(
    strange: str, spark: Any, tmp_path: Path, make_queue: Make
) -> None:
    queue = make_queue()
    made = performer(PublishAction(feed="wx/x", ident="i", content="json"), "p", None, DeadLetters(tmp_path / "dead"))
    counts = made.perform(rows(spark, f"id as sequence, {strange} as t"), context_of(tmp_path, queue=str(queue.path)))
    assert counts == Counts(5, failed=1)
    (letter,) = letters_in(tmp_path / "dead")
    assert (letter["sequence"], letter["payload"]) == (1, b'{"sequence":1,"t":null}')
    assert letter["error"] == "t is a time outside the years 1 to 9999"
    assert len(queue.read_batch("oldest")) == 5


def test_a_time_that_is_not_used_may_be_out_of_range() -> None:
    times = pa.array([0, 2**62], pa.timestamp("us", "UTC"))
    rows = pa.RecordBatch.from_arrays([pa.array(["a", "b"]), pa.array([b"p", b"q"]), times], ["ident", "payload", "t"])
    made = Recipe((("{ident}", "path"),), None, "payload")(rows)
    assert (made.column("content").to_pylist(), made.column("error").to_pylist()) == ([b"p", b"q"], [None, None])
    made = Recipe((("{ident}", "path"),), None, "json")(rows)
    assert made.column("error").to_pylist() == [None, "t is a time outside the years 1 to 9999"]


def test_a_slice_of_a_batch_is_repaired_like_the_whole() -> None:
    raw = pa.array([[b"a"], None, [b"b\xff", None], [], [b"c"]], pa.list_(pa.binary()))
    texts = pa.Array.from_buffers(pa.string(), len(raw.values), raw.values.buffers())
    column = pa.ListArray.from_arrays(raw.offsets, texts, mask=raw.is_null())
    whole = [["a"], None, ["b\ufffd", None], [], ["c"]]
    for begin in range(5):
        part = pa.RecordBatch.from_arrays([column.slice(begin)], ["t"])
        assert with_valid_text(part).column("t").to_pylist() == whole[begin:]


def test_invalid_utf_8_is_replaced_at_any_depth(spark: Any, tmp_path: Path, make_queue: Make) -> None:
    queue = make_queue()
    made = performer(PublishAction(feed="wx/x", ident="i", content="json"), "p", None, DeadLetters(tmp_path / "dead"))
    text = "cast(if(id = 1, X'61ff', X'62') as string)"
    nested = f"if(id = 0, null, map({text}, array(named_struct('a', {text}, 'b', id), null)))"
    frame = rows(spark, f"id, {nested} as m").filter("id < 3")
    assert made.perform(frame, context_of(tmp_path, queue=str(queue.path))) == Counts(3)
    assert sorted(bytes(product.payload).decode() for product in queue.read_batch("oldest")) == [
        '{"id":0,"m":null}',
        '{"id":1,"m":{"a\ufffd":[{"a":"a\ufffd","b":1},null]}}',
        '{"id":2,"m":{"b":[{"a":"b","b":2},null]}}',
    ]


@pytest.mark.parametrize("is_alert", [False, True])
def test_a_row_that_its_own_rule_would_select_is_a_dead_letter(
    is_alert: bool, spark: Any, tmp_path: Path, make_queue: Make
) -> None:
    queue = make_queue()
    action = (
        AlertAction(when="true", feed="wx/{ident}", ident="{ident}", message="m")
        if is_alert
        else PublishAction(feed="wx/{ident}", ident="{ident}", content="text")
    )
    frame = rows(spark, "id as sequence, if(id = 1, 'in', concat('x', id)) as ident, 't' as text")
    made = performer(action, "p", Selection("wx/in"), DeadLetters(tmp_path / "dead"))
    assert made.perform(frame, context_of(tmp_path, queue=str(queue.path))) == Counts(5, failed=1)
    assert [(letter["sequence"], letter["error"]) for letter in letters_in(tmp_path / "dead")] == [
        (1, "the rule selects 'wx/in' itself, and would never end")
    ]
    assert "wx/in" not in {product.feed for product in queue.read_batch("oldest")}


def looping(rule: Selection, action: PublishAction, spark: Any, root: Path, queue: Queue) -> int:
    """How many of two rows, with the idents A and B, are refused."""
    frame = rows(spark, "if(id = 0, 'A', 'B') as ident, 't' as text").filter("id < 2")
    made = performer(action, "p", rule, DeadLetters(root / "dead"))
    return made.perform(frame, context_of(root, queue=str(queue.path))).failed


@pytest.mark.parametrize(
    ("select", "refused"),
    [
        ("wx/**", 2),
        ("wx/x", 2),
        ("wx/y", 0),
        ('wx/x ident ~ "A"', 1),
        ("wx/x priority 4", 2),
        ("wx/x priority 5..", 0),
        ("wx/x origin here", 2),
        ("wx/x origin there", 0),
        ("wx/x where level > 3", 0),
    ],
)
def test_every_clause_of_the_selection_decides_whether_a_product_would_loop(
    select: str, refused: int, spark: Any, tmp_path: Path, make_queue: Make
) -> None:
    queue = make_queue(origin="here")
    action = PublishAction(feed="wx/x", content="text")
    assert looping(Selection.parse(select), action, spark, tmp_path, queue) == refused


def test_publishing_to_another_queue_does_not_loop(spark: Any, tmp_path: Path, make_queue: Make) -> None:
    own, other = make_queue("own"), make_queue("other")
    (tmp_path / "alias").symlink_to(own.path)
    for path, refused in ((other.path, 0), (own.path, 2), (tmp_path / "alias", 2)):
        action = PublishAction(feed="wx/x", content="text", queue=path)
        assert looping(Selection("wx/x"), action, spark, tmp_path, own) == refused
