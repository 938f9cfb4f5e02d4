"""Problems at the door of a site: somebody guesses passwords, or guesses are not noticed."""

from collections.abc import Iterator

from headrace.link.door import Door
from headrace.relay.messages.description import Problem

KIND = "login"
_MOST = 20  # networks


def door_problems(door: Door | None) -> Iterator[Problem]:
    """What an operator should look at; nothing without a door."""
    if door is None:
        return
    if door.failure:
        yield Problem(
            KIND, "", f"failed logins are not noticed, and nobody is locked out: {door.failure}",
            "let the site use sockets of the family AF_NETLINK, or use certificates instead of passwords",
        )  # fmt: skip
    for each in sorted(door.guessers(), key=lambda each: -each.failures)[:_MOST]:
        several = 1 << (each.failures.bit_length() - 1)  # a problem whose text changes is logged again
        yield Problem(
            KIND, each.network, f"more than {several:,} logins from {each.network} have failed; it is locked out",
            "correct the password there; or keep that network away by a firewall, and check the strength of passwords",
        )  # fmt: skip
