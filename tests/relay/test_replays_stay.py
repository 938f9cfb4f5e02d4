"""Products of a replay leave their site only if they may."""

from headrace.timing.replay.marks import Stored
from support.fleet import Fabric, held, want
from support.waiting import until


def test_replays_stay_at_their_site_unless_they_may_be_relayed(fabric: Fabric) -> None:
    one = fabric.add("one")
    two = fabric.add("two", want("**", "oldest"), near=("one",))
    one.put(b"live", feed="wx")
    until(lambda: len(held(two)) == 1, "two has the live product")
    assert sum(one.replay(speed="max").put_into(one, "**"), Stored()).stored == 1
    assert sum(one.replay(speed="max").put_into(one, "**", relay=True), Stored()).stored == 1
    one.put(b"last", feed="wx")
    until(lambda: any(payload == b"last" for *_, payload in held(two)), "two has the last one")
    assert [(payload, product.is_replay) for (*_, payload), product in zip(held(two), two.read(), strict=True)] == [
        (b"live", False), (b"live", True), (b"last", False),
    ]  # fmt: skip
    assert [product.created_ns for product in two.read("oldest", "replay true")] == [
        product.created_ns for product in one.read("oldest", limit=1)
    ]
