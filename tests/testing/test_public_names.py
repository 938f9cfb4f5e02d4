"""The names that users may rely on."""

import headrace.testing


def test_the_public_names_are_exactly_these() -> None:
    assert sorted(headrace.testing.__all__) == [
        "Draft",
        "FeedGenerator",
        "MemoryGroup",
        "MockClock",
        "NarrowLink",
        "Oracle",
        "PowerCut",
        "Verdict",
    ]
    assert all(hasattr(headrace.testing, name) for name in headrace.testing.__all__)
