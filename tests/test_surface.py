"""The names that users may rely on."""

import headrace
import headrace.queue


def test_the_public_names_are_exactly_these() -> None:
    assert headrace.__all__ == [
        "Batch", "Consumer", "Cursor", "Duplicate", "HeadraceError", "Lost", "Product", "Queue", "Receipt",
        "Selection", "Station", "connect",
    ]  # fmt: skip


def test_every_error_is_in_the_drawn_tree() -> None:
    import headrace.errors as errors

    classes = [name for name, value in vars(errors).items() if isinstance(value, type)]
    assert errors.__doc__ is not None
    assert [name for name in classes if name not in errors.__doc__] == []
