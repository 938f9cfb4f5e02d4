"""The names that users may rely on."""

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

import headrace
import headrace.errors as errors


def test_the_public_names_are_exactly_these() -> None:
    assert [name for name in headrace.__all__ if not name.endswith("Error")] == [
        "Batch", "Channel", "Consumer", "Cursor", "Duplicate", "FileBookmark", "Lost", "Pacer", "Product", "Queue", "Receipt",
        "ReleaseBuffer", "Selection", "SqliteBookmark", "Station", "connect", "joined",
    ]  # fmt: skip
    assert [name for name in headrace.__all__ if name.endswith("Error")] == [
        "AccessDeniedError", "BlockedError", "BookmarkError", "ChannelEndedError", "ChannelMissingError", "ConsumersFullError", "DiskFullError",
        "HeadraceError", "InvalidError", "LateError", "LeaseLostError", "MemberAbsentError", "MissingExtraError", "PayloadError", "ProductDamagedError",
        "ProductsLostError", "QueueBusyError", "QueueClosedError", "QueueDamagedError", "QueueError",
        "QueueExistsError", "QueueMissingError", "RejectedError", "SelectionError", "SiteUnreachableError",
        "StationExistsError", "StationMissingError", "SuppliersFullError", "TermsError",
    ]  # fmt: skip
    assert dir(headrace) == sorted([*headrace.__all__, "__version__"])


def test_every_public_name_is_loaded_when_it_is_used() -> None:
    assert {name for name in headrace.__all__ if getattr(headrace, name).__name__ != name} == set()
    assert headrace.__version__ == version("headrace")
    with pytest.raises(AttributeError, match="has no attribute 'Qeue'"):
        headrace.Qeue


def test_an_import_of_the_package_loads_nothing_else() -> None:
    code = "import sys; old = set(sys.modules); import headrace; print(*sorted(set(sys.modules) - old))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=240, check=True)
    assert [name for name in done.stdout.split() if name.startswith(("headrace.", "numpy", "importlib.metadata"))] == []


def test_the_names_of_a_queue_are_exactly_these() -> None:
    assert sorted(name for name in vars(headrace.Queue) if not name.startswith("_")) == [
        "channel", "channels", "check", "clock", "close", "config", "create", "cursor", "cursors", "delete", "flush", "follow",
        "is_alive", "is_read_only", "members", "next", "oldest", "open", "origins", "put", "put_async", "put_batch", "put_many", "put_many_async", "read", "read_batch", "remove",
        "repair", "replay", "resize", "resolve", "share", "shares", "station", "stations", "statistics", "train_dictionary", "wait_alive", "wait_for", "wait_for_async", "wanted", "wanted_by", "weigh",
    ]  # fmt: skip


def completion(thing: Any) -> str:
    """What a notebook offers after the dot."""
    return " ".join(name for name in dir(thing) if not name.startswith("_"))


def test_path_is_the_only_public_attribute_of_an_open_queue(tmp_path: Path) -> None:
    with headrace.Queue.create(tmp_path / "q", size="1MiB") as queue:
        assert [name for name in vars(queue) if not name.startswith("_")] == ["path"]


def test_completion_shows_what_users_need_and_nothing_else(tmp_path: Path) -> None:
    with headrace.Queue.create(tmp_path / "q", size="1MiB") as queue:
        station, channel, cursor = queue.station("s", "**"), queue.channel("c", "a/**"), queue.cursor("c")
        queue.put(b"x", feed="a")
        with station.attach() as consumer:
            batch = consumer.get()
            assert completion(consumer) == (
                "abandon ack batches batches_async detach discard get get_async get_nowait interrupt nack new put "
                "station_name statistics"
            )
        assert completion(station) == (
            "attach change consumers forget lag name parked pause remove resume retry seek statistics terms"
        )
        assert completion(channel) == (
            "change change_station consumer definition feed follow name pull qos remove station stations statistics supplier"
        )
        assert completion(cursor) == "commit follow name position read read_batch remove save seek state"
        assert completion(batch) == (
            "columns damaged deleted deliveries expired feed feeds filtered fragments ident_column idents lost name "
            "name_column names next origin origins payload payload_bytes payload_column property_block property_column record "
            "revisions scanned sequences sizes take to_arrow to_pandas to_polars"
        )
        product = (
            "bound_ns copy created created_ns expiry expiry_ns feed ident inserted inserted_ns is_replay options origin "
            "origin_sequence part payload "
            "previous priority properties sequence signature size slice"
        )
        assert (completion(batch[0]), completion(batch[0].copy())) == (product, product)


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
