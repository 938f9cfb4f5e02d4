"""What a site knows of its members: the list with its states, and the tokens of other sites."""

import pytest

from headrace.link.keys import site_key, site_state_key
from headrace.queue.members import End, Member
from headrace.remote.server import roster as rosters
from headrace.remote.server.offers import largest_feeds
from headrace.remote.server.roster import Roster
from headrace.remote.server.sites_seen import DOUBT_S, SESSIONS_MAX, SETTLE_S, SitesSeen


def site(name: str, instance: str = "1") -> Member:
    return Member("site", name, name, instance)


def lost(member: Member) -> End:
    return End(member.role, member.name, member.instance, "lost")


# --- the list -----------------------------------------------------------------------------------------


def test_a_client_gets_what_has_changed_since_the_state_that_it_knows() -> None:
    roster = Roster()
    assert roster.update([site("a"), site("b")], lost)
    assert not roster.update([site("b"), site("a")], lost)
    first = roster.changes("", 0)
    assert (first.is_whole, first.members, first.ended) == (True, [site("a"), site("b")], [])
    known = roster.state
    roster.update([site("a"), site("c")], lost)
    then = roster.changes(roster.list_id, known)
    assert (then.is_whole, then.members, then.ended) == (False, [site("c")], [(site("b"), lost(site("b")))])
    assert roster.changes(roster.list_id, roster.state).members == []


def test_a_state_of_another_run_or_of_the_future_is_answered_with_the_whole_list() -> None:
    roster = Roster()
    roster.update([site("a")], lost)
    for list_id, state in ((Roster().list_id, 1), (roster.list_id, 99), (roster.list_id, 0)):
        assert roster.changes(list_id, state).is_whole


def test_a_client_that_is_too_far_behind_gets_the_whole_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rosters, "ENDS_MAX", 3)
    roster = Roster()
    roster.update([site(str(number)) for number in range(8)], lost)
    for number in range(1, 6):
        roster.update([site(str(left)) for left in range(number, 8)], lost)
    assert roster.changes(roster.list_id, 1).is_whole
    near = roster.changes(roster.list_id, 3)
    assert (near.is_whole, len(near.ended)) == (False, 3)


# --- tokens of sites ----------------------------------------------------------------------------------


class Tokens:
    """Tokens of site b, at moments that the test chooses."""

    def __init__(self) -> None:
        self.seen, self.now = SitesSeen("ffff"), 100.0

    def see(self, session: str, state: str = "", *, there: bool = True, name: str = "b") -> None:
        key = site_state_key(name, session, state) if state else site_key(name, session)
        self.seen.see(key, there, self.now)

    def present(self, after_s: float = 0.0) -> dict[tuple[str, str], str]:
        self.now += after_s
        return self.seen.present(self.now)


def test_a_site_is_present_with_its_session_and_its_digest() -> None:
    tokens = Tokens()
    tokens.see("1", "d1")
    assert tokens.present() == {}  # the site itself was not seen yet
    tokens.see("1")
    assert tokens.present() == {("b", "1"): "d1"}
    tokens.see("1", "d2")
    tokens.see("1", "d1", there=False)
    assert tokens.present() == {("b", "1"): "d2"}


def test_a_token_that_is_declared_again_at_once_was_never_away() -> None:
    tokens = Tokens()
    tokens.see("1")
    tokens.see("1", there=False)
    assert tokens.present(SETTLE_S / 2) == {("b", "1"): ""}
    tokens.see("1")
    assert tokens.present(9 * SETTLE_S) == {("b", "1"): ""}


@pytest.mark.parametrize("is_late", [False, True])
def test_a_site_that_leaves_has_stopped_at_once(is_late: bool) -> None:
    tokens = Tokens()
    tokens.see("1")
    for there in (False, True) if is_late else (True, False):
        tokens.see("1", there=False) if not there else tokens.see("1", "leaving")
    assert tokens.present() == {}
    assert tokens.seen.end_of("b", "1").reason == "stopped"


def test_a_site_that_does_not_return_was_lost() -> None:
    tokens = Tokens()
    tokens.see("1")
    tokens.see("1", there=False)
    assert tokens.seen.due_s(tokens.now) == SETTLE_S
    assert tokens.present(SETTLE_S) == {}
    assert tokens.seen.end_of("b", "1").reason == "lost"
    assert tokens.seen.due_s(tokens.now) is None


def test_a_site_that_was_restarted_replaces_its_earlier_run_at_once() -> None:
    tokens = Tokens()
    tokens.see("9")
    tokens.see("9", there=False)
    tokens.see("1")
    assert tokens.present() == {("b", "1"): ""}
    assert tokens.present(SETTLE_S) == {("b", "1"): ""}


def test_two_sites_of_one_name_are_both_present_until_one_is_gone() -> None:
    tokens = Tokens()
    tokens.see("9")
    tokens.see("1")
    assert set(tokens.present()) == {("b", "9"), ("b", "1")}
    tokens.see("9", there=False)
    assert set(tokens.present(SETTLE_S / 2)) == {("b", "9"), ("b", "1")}  # it may be declared again
    assert set(tokens.present(SETTLE_S)) == {("b", "1")}


def test_a_site_sees_another_one_of_its_own_name() -> None:
    tokens = Tokens()
    tokens.see("ffff", name="a")  # its own session
    tokens.see("9", name="a")
    assert set(tokens.present()) == {("a", "9")}


def test_a_site_that_stops_is_not_followed_by_its_dead_predecessor() -> None:
    tokens = Tokens()
    tokens.see("9")
    tokens.see("9", there=False)
    tokens.see("1")
    tokens.see("1", "leaving")
    tokens.see("1", there=False)
    assert tokens.present() == {}
    assert tokens.seen.end_of("b", "1").reason == "stopped"


def test_after_a_new_subscription_sites_have_some_time_to_be_seen_again() -> None:
    tokens = Tokens()
    tokens.see("1")
    tokens.see("1", name="c")
    tokens.seen.doubt(tokens.now)
    tokens.see("1")
    assert set(tokens.present(DOUBT_S / 2)) == {("b", "1"), ("c", "1")}
    assert set(tokens.present(DOUBT_S)) == {("b", "1")}


@pytest.mark.parametrize(
    "key",
    ["headrace/site/**", "headrace/site/*/1", "headrace/site/b/*", "headrace/site/b/**", "headrace/site/no name/1",
     "headrace/site/b/xyz", "headrace/site/b/1/2/3", "headrace/site/b", f"headrace/site/b/{'1' * 33}"],
)  # fmt: skip
def test_tokens_that_no_site_declares_are_refused(key: str) -> None:
    seen = SitesSeen("ffff")
    seen.see(key, True, 0.0)
    assert (seen.present(0.0), seen.refused) == ({}, 1)


def test_a_site_is_not_told_about_itself_and_nobody_can_fill_its_memory() -> None:
    tokens = Tokens()
    tokens.see("ffff", name="a")
    for number in range(SESSIONS_MAX + 10):
        tokens.see(f"{number:x}", "d1", name="liar")  # and never the token of a site
    assert tokens.present() == {}
    assert tokens.seen.refused == 10
    for number in range(20):
        tokens.see(f"{number:x}", "d1", there=False, name="liar")
    tokens.see("1")
    assert set(tokens.present()) == {("b", "1")}


def test_a_member_has_the_largest_feeds_and_no_invalid_ones() -> None:
    feeds = [(number, f"f/{number:03}") for number in range(300)]
    assert largest_feeds(feeds) == tuple(f"f/{number:03}" for number in range(200, 300))
    assert largest_feeds([(1, "wx/text"), (2, "no//feed"), (3, "a b*")]) == ("wx/text",)
