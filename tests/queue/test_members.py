"""Members as plain data: what a View tells of two states, and what `wait_for` accepts."""

import random

import pytest

from headrace.errors import OptionError
from headrace.queue.members import End, Look, Member, View, Wanted, parse_wanted
from support.seeds import random_seed


def site(name: str, instance: str = "1", *feeds: str) -> Member:
    return Member("site", name, name, instance, feeds)


def consumer(instance: str) -> Member:
    return Member("consumer", "decode", "a", instance, ("wx/**",))


def told(view: View, look: Look) -> list[str]:
    return [str(event) for event in view.see(look)]


def test_the_first_look_tells_who_is_present_and_the_next_who_is_new() -> None:
    view = View()
    assert told(view, Look([site("a"), site("b")])) == ["site:a joined (present)", "site:b joined (present)"]
    assert told(view, Look([site("a"), site("b"), site("c")])) == ["site:c joined (new)"]
    assert told(view, Look([site("a"), site("b"), site("c")])) == []


def test_a_member_that_said_goodbye_has_stopped_and_any_other_was_lost() -> None:
    view = View()
    view.see(Look([site("a"), site("b")]))
    ends = [End("site", "a", "1", "stopped"), End("site", "b", "0", "stopped")]  # that of b is of an earlier run
    assert told(view, Look([], ends)) == ["site:a left (stopped)", "site:b left (lost)"]


def test_a_site_that_comes_back_was_restarted_or_has_returned() -> None:
    view = View()
    view.see(Look([site("a", "1")]))
    view.see(Look([]))
    assert told(view, Look([site("a", "1")])) == ["site:a joined (returned)"]
    view.see(Look([]))
    assert told(view, Look([site("a", "2")])) == ["site:a joined (restarted)"]
    assert told(view, Look([site("a", "3")])) == ["site:a changed (restarted)"]  # nobody saw it leave


def test_a_site_changes_when_its_feeds_do() -> None:
    view = View()
    view.see(Look([site("a", "1", "wx/text")]))
    (event,) = view.see(Look([site("a", "1", "wx/radar", "wx/text")]))
    assert (event.kind, event.reason, event.feeds) == ("changed", "feeds", ("wx/radar", "wx/text"))
    assert (event.role, event.name, event.site) == ("site", "a", "a")


def test_programs_at_one_station_are_told_apart() -> None:
    view = View()
    view.see(Look([consumer("0-1"), consumer("1-1")]))
    ended = Look([consumer("0-2")], [End("consumer", "decode", "0-1", "stopped")], is_whole=False)
    assert told(view, ended) == ["consumer:decode left (stopped)", "consumer:decode joined (new)"]
    assert {member.instance for member in view.here.values()} == {"0-2", "1-1"}


def test_a_difference_leaves_everybody_else_as_they_are() -> None:
    view = View()
    view.see(Look([site("a"), site("b")]))
    assert told(view, Look([site("c")], is_whole=False)) == ["site:c joined (new)"]
    assert len(view.here) == 3
    assert told(view, Look([site("a", "2")], [End("site", "a", "1", "lost")], is_whole=False)) == [
        "site:a changed (restarted)"
    ]


def test_the_end_of_a_run_that_nobody_has_seen_is_not_told() -> None:
    view = View()
    view.see(Look([site("a", "1")]))
    ends = [End("site", "a", "1", "lost"), End("site", "a", "2", "stopped")]
    assert told(view, Look([], ends[1:], is_whole=False)) == []
    assert told(view, Look([], ends, is_whole=False)) == ["site:a left (lost)"]


def test_two_sites_of_one_name_are_told_apart_and_neither_was_restarted() -> None:
    view = View()
    assert told(view, Look([site("a", "1")])) == ["site:a joined (present)"]
    (joined,) = view.see(Look([site("a", "2")], is_whole=False))
    assert (str(joined), joined.member.instance) == ("site:a joined (duplicate)", "2")
    assert told(view, Look([site("a", "1"), site("a", "2", "wx")])) == ["site:a changed (feeds)"]
    assert told(view, Look([site("a", "3"), site("a", "2", "wx")])) == [
        "site:a left (lost)",
        "site:a joined (duplicate)",
    ]
    assert told(view, Look([], otherwise="unreachable")) == ["site:a left (unreachable)"] * 2
    assert told(view, Look([site("a", "3"), site("a", "2", "wx")])) == [
        "site:a joined (returned)",
        "site:a joined (duplicate)",
    ]
    assert told(view, Look([], [End("site", "a", "3", "stopped")], is_whole=False)) == ["site:a left (stopped)"]
    assert told(view, Look([site("a", "4")])) == ["site:a changed (restarted)"]


def test_whatever_was_missed_the_view_ends_with_the_true_state() -> None:
    chance = random.Random(random_seed())
    view, here = View(), dict[str, Member]()
    for _ in range(300):
        for _ in range(chance.randrange(5)):  # several changes between two looks
            name = chance.choice("abcdef")
            if name in here and chance.random() < 0.5:
                del here[name]
            else:
                here[name] = site(name, str(chance.randrange(3)), *chance.sample(["x", "y"], chance.randrange(3)))
        known = set(view.here)
        for event in view.see(Look(here.values())):
            if event.reason == "restarted":
                known = {key for key in known if key[1] != event.name}
            (known.discard if event.kind == "left" else known.add)(event.member.key)
        assert {member.name: member for member in view.here.values()} == here
        assert known == set(view.here)  # the events tell it as well


@pytest.mark.parametrize("text", ["", "site", "site:", ":denver", "host:denver", "Site:denver"])
def test_what_is_not_a_member_is_refused_with_the_form(text: str) -> None:
    with pytest.raises(OptionError, match="write ROLE:NAME, with one of site, client, supplier, consumer"):
        parse_wanted(text)


def test_a_name_may_be_any() -> None:
    assert parse_wanted("site:denver") == Wanted("site", "denver")
    assert parse_wanted("supplier:*").matches(Member("supplier", "radar", "a", "1-1"))
    assert not parse_wanted("supplier:*").matches(site("radar"))
    assert not parse_wanted("site:a").matches(site("b"))
