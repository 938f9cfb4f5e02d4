"""The names that users may rely on."""

from pathlib import Path

import pytest

import headrace
import headrace.errors as errors


def test_the_public_names_are_exactly_these() -> None:
    assert headrace.__all__ == [
        "Batch", "Consumer", "Cursor", "Duplicate", "HeadraceError", "Lost", "Product", "Queue", "Receipt",
        "Selection", "Station", "connect",
    ]  # fmt: skip


def test_the_names_of_a_queue_are_exactly_these() -> None:
    assert sorted(name for name in vars(headrace.Queue) if not name.startswith("_")) == [
        "channel", "channels", "check", "close", "config", "create", "cursor", "cursors", "delete", "flush", "follow",
        "next", "oldest", "open", "origins", "put", "put_batch", "put_many", "read", "read_batch", "remove",
        "repair", "resize", "resolve", "station", "stations", "statistics", "wanted", "wanted_by", "weigh",
    ]  # fmt: skip


def test_path_is_the_only_public_attribute_of_an_open_queue(tmp_path: Path) -> None:
    with headrace.Queue.create(tmp_path / "q", size="1MiB") as queue:
        assert [name for name in vars(queue) if not name.startswith("_")] == ["path"]


def test_a_misspelt_fact_of_a_product_is_refused(tmp_path: Path) -> None:
    with headrace.Queue.create(tmp_path / "q", size="1MiB") as queue:
        with pytest.raises(TypeError, match="unexpected keyword argument 'expires'"):
            queue.put(b"x", feed="a", expires=1)  # type: ignore[call-arg]
        with pytest.raises(TypeError, match="unexpected keyword argument 'expires'"):
            queue.put_many([b"x"], feed="a", expires=1)  # type: ignore[call-arg]


def test_every_error_is_in_the_tree_of_the_docstring() -> None:
    classes = [name for name, value in vars(errors).items() if isinstance(value, type)]
    assert errors.__doc__ is not None
    assert [name for name in classes if name not in errors.__doc__] == []
