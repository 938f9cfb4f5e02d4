"""Rows that become products: once each, and those that cannot are told."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from headrace import Queue
from headrace.errors import PipelineError
from headrace.pipeline.actions import Context, Counts, DeadLetters, performer
from headrace.pipeline.rules import AlertAction, PublishAction
from headrace.pipeline.source.options import Place

Make = Callable[..., Queue]


def context_of(root: Path, queue: Queue, batch_id: int = 0, application: str = "test") -> Context:
    return Context("r", batch_id, Place(str(queue.path), None), root / "state", application)


def rows(spark: Any, text: str) -> Any:
    return spark.sql(f"select {text} from range(6)")


def letters_in(root: Path) -> list[dict[str, Any]]:
    return [row for path in (root / "dead").glob("*.parquet") for row in pq.read_table(path).to_pylist()]


def test_rows_are_put_once(spark: Any, tmp_path: Path, make_queue: Make) -> None:
    queue = make_queue()
    action = PublishAction(feed="wx/derived/{station:lower}", ident="{station} {id:03}", content="json", priority=5)
    made = performer(action, "publish-0", None, DeadLetters(tmp_path / "dead"))
    frame = rows(spark, "id, if(id % 2 = 0, 'KDEN', 'KBOU') as station, cast(null as string) as text")
    for _ in range(2):
        assert made.perform(frame, context_of(tmp_path, queue)) == Counts(6)
    products = list(queue.read("oldest"))
    assert sorted((p.feed, p.ident, bytes(p.payload), p.priority) for p in products) == sorted(
        (f"wx/derived/{s.lower()}", f"{s} {n:03}", b'{"id":%d,"station":"%s","text":null}' % (n, s.encode()), 5)
        for n in range(6) for s in [("KDEN", "KBOU")[n % 2]]
    )  # fmt: skip
    made.perform(frame, context_of(tmp_path, queue, application="another"))
    assert len(queue.read("oldest")) == 12, "another pipeline's products are its own"


def test_rows_that_say_the_same_about_different_products_are_two(spark: Any, tmp_path: Path, make_queue: Make) -> None:
    queue = make_queue()
    made = performer(PublishAction(feed="wx/x", ident="i", content="text"), "p", None, DeadLetters(tmp_path / "dead"))
    frame = rows(spark, "id as sequence, 'same' as text")
    made.perform(frame, context_of(tmp_path, queue))
    assert [(p.ident, bytes(p.payload)) for p in queue.read("oldest")] == [("i", b"same")] * 6


def test_rows_that_cannot_be_products_are_dead_letters(spark: Any, tmp_path: Path, make_queue: Make) -> None:
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
        assert made.perform(frame, context_of(tmp_path, queue)) == Counts(2, failed=4)
    told = {row["sequence"]: row["error"] for row in letters_in(tmp_path)}
    assert set(told) == {1, 2, 3, 4}
    assert "missing" in told[1]
    assert "the queue takes" in told[4]
    assert len(queue.read("oldest")) == 2


def test_a_product_without_an_ident_is_published_without_one(spark: Any, tmp_path: Path, make_queue: Make) -> None:
    queue = make_queue()
    made = performer(PublishAction(feed="wx/x", content="text"), "p", None, DeadLetters(tmp_path / "dead"))
    frame = rows(spark, "id as sequence, if(id = 0, '', concat('i', id)) as ident, 't' as text")
    assert made.perform(frame, context_of(tmp_path, queue)) == Counts(6)
    assert sorted(product.ident for product in queue.read("oldest")) == ["", "i1", "i2", "i3", "i4", "i5"]


def test_an_alert_is_put_where_its_condition_holds(spark: Any, tmp_path: Path, make_queue: Make) -> None:
    queue = make_queue()
    action = AlertAction(when="gust > 3", feed="wx/alert", ident="{station}", message="{station}: gust {gust:.1} m/s")
    made = performer(action, "alert-0", None, DeadLetters(tmp_path / "dead"))
    for _ in range(2):
        assert made.perform(
            rows(spark, "concat('K', id) as station, id * 1.0d as gust"), context_of(tmp_path, queue)
        ) == Counts(2)
    assert sorted((p.ident, bytes(p.payload), p.priority) for p in queue.read("oldest")) == [
        ("K4", b"K4: gust 4.0 m/s", 6), ("K5", b"K5: gust 5.0 m/s", 6),
    ]  # fmt: skip


def test_products_may_go_to_another_queue(spark: Any, tmp_path: Path, make_queue: Make) -> None:
    one, other = make_queue("one"), make_queue("other")
    action = PublishAction(feed="wx/x", ident="{id}", content="json", queue=other.path)
    made = performer(action, "p", None, DeadLetters(tmp_path / "dead"))
    assert made.perform(rows(spark, "id"), context_of(tmp_path, one)) == Counts(6)
    assert (len(one.read("oldest")), len(other.read("oldest"))) == (0, 6)


def test_a_queue_that_takes_duplicates_is_refused(spark: Any, tmp_path: Path, make_queue: Make) -> None:
    queue = make_queue(dedup="none")
    made = performer(PublishAction(feed="wx/x", ident="i", content="json"), "p", None, DeadLetters(tmp_path / "dead"))
    with pytest.raises(PipelineError, match="takes duplicates"):
        made.perform(rows(spark, "id"), context_of(tmp_path, queue))
