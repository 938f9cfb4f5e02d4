"""Membership: who takes part, as a site sees it, and the clients that watch.

    sites        by their tokens (sites_seen.py), with the feeds that they offer (offers.py)
    clients      of this site, by theirs (clients.py)
    suppliers, consumers    of its queue, by the files of the queue; looked at while anybody watches

One thread keeps the list (roster.py) and finds the calls that wait for a change of it; the threads that execute reads
send the replies, because a client whose link is full must not hold up the others. A client learns what it may know:
the names of all sites with the feeds that it may receive, the suppliers of channels and consumers of stations that it
may use, and clients only if it may receive everything.
"""

import logging
import os
import threading
import time
from collections.abc import Callable
from typing import Any

import zenoh

from headrace.errors import FabricError, HeadraceError
from headrace.guard import GuardedThread, guarded
from headrace.link.declarations import Declarations
from headrace.link.keys import site_key
from headrace.queue import Queue
from headrace.queue.members import End, Member
from headrace.queue.programs import Programs, place_of
from headrace.queue.queue import stations_of
from headrace.remote.protocol.member_calls import MemberChanges, WatchMembers
from headrace.remote.server.clients import Clients
from headrace.remote.server.offers import OtherOffers, OwnOffer
from headrace.remote.server.pending_call import PendingCall
from headrace.remote.server.roster import Roster
from headrace.remote.server.sites_seen import SitesSeen

WATCHING_MAX = 1024  # calls that wait
WATCHING_OF_ONE_MAX = 32
WATCHING_OF_PRINCIPAL_MAX = 512  # where principals have quotas
_LOOK_S = 0.5  # between two looks at programs, while anybody watches
_OFFER_S = 2.0  # between two looks at the feeds of this site
_WATCHED_S = 15.0  # after the last call; a client that watches calls again much sooner

log = logging.getLogger("headrace.remote.server")
HandOver = Callable[[Callable[[PendingCall], None], PendingCall], None]


class Membership:
    """Watches from the moment it is made until `close`."""

    def __init__(
        self, session: zenoh.Session, declarations: Declarations, queue: Queue, site: str, clients: Clients,
        principal: str | None, hand_over: HandOver,
    ) -> None:  # fmt: skip
        """`hand_over` executes something with a call in another thread, or at once if there is none any more."""
        self._site, self._clients, self._hand_over = site, clients, hand_over
        self._programs = Programs(queue.path, stations_of(queue), site)
        self._seen, self._roster = SitesSeen(str(session.zid())), Roster()
        self._wake = threading.Event()
        self._own = OwnOffer(session, declarations, queue, site)
        self._others = OtherOffers(session, principal, self._wake.set)
        self._waiting: list[PendingCall] = []
        self._lock, self._turning = threading.Lock(), threading.RLock()  # of the calls that wait; of the list
        self._watched_at = self._looked_at = self._offered_at = -_WATCHED_S
        self._known_programs: list[Member] = []
        self._is_leaving = self._is_stopped = False
        self._own.refresh()
        try:
            self._tokens = declarations.add(lambda: self._listen(session))
        except zenoh.ZError:
            self._own.close()
            raise
        self._thread = GuardedThread(self._run, "headrace-members", until=lambda: self._is_stopped)
        self._thread.start()

    def __len__(self) -> int:
        """How many calls wait."""
        return len(self._waiting)

    # --- tokens -----------------------------------------------------------------------------------

    def _listen(self, session: zenoh.Session) -> Any:
        """Subscribe; one subscription for all tokens, so that they arrive in the order in which they were declared."""
        self._seen.doubt(time.monotonic())
        return session.liveliness().declare_subscriber(site_key("*", "**"), guarded(self._see), history=True)

    def _see(self, sample: zenoh.Sample) -> None:
        """Runs on a thread of Zenoh's."""
        self._seen.see(str(sample.key_expr), sample.kind == zenoh.SampleKind.PUT, time.monotonic())
        self._wake.set()

    # --- calls ------------------------------------------------------------------------------------

    def watch(self, pending: PendingCall, call: WatchMembers) -> None:
        """Reply when there is a state that the client does not know, or its time is over.

        FabricError if too many wait.
        """
        pending.deadline = time.monotonic() + call.wait_s
        with self._lock:
            of_one = sum(other.client is pending.client for other in self._waiting)
            if of_one >= WATCHING_OF_ONE_MAX:
                raise FabricError(
                    f"this client waits for members at site {self._site} {WATCHING_OF_ONE_MAX} times already, which is "
                    "the limit for one client",
                    "read one stream of members() for all purposes, or connect once more",
                )
            of_principal = sum(other.client.principal is pending.client.principal for other in self._waiting)
            has_most = pending.client.principal.has_limits and of_principal >= WATCHING_OF_PRINCIPAL_MAX
            if len(self._waiting) >= WATCHING_MAX or has_most:
                raise FabricError(
                    f"{of_principal if has_most else WATCHING_MAX} calls wait for members at site {self._site} "
                    "already, which is its limit",
                    "retry later",
                )
            self._watched_at = time.monotonic()
            if not call.state:
                self._looked_at = -_WATCHED_S  # look now
            self._waiting.append(pending)
        if self._is_stopped:
            self._answer(time.monotonic())
        self._wake.set()

    def _answer(self, now: float) -> None:
        with self._lock:
            ready = [call for call in self._waiting if self._is_stopped or self._is_due(call, now)]
            done = set(map(id, ready))
            self._waiting = [call for call in self._waiting if id(call) not in done]
        for call in ready:
            self._hand_over(self._finish, call)

    def _is_due(self, pending: PendingCall, now: float) -> bool:
        """Whether the client does not know this state. Its first list is one that everybody was asked for."""
        call = pending.call
        assert isinstance(call, WatchMembers)
        if pending.deadline <= now:
            return True
        if call.list_id != self._roster.list_id or not call.state:
            return self._looked_at >= pending.deadline - call.wait_s and self._others.is_settled(now)
        return call.state != self._roster.state

    def _finish(self, pending: PendingCall) -> None:
        with self._turning:
            reply = self._reply(pending)
        pending.finish(reply)

    def _reply(self, pending: PendingCall) -> MemberChanges:
        call, access = pending.call, pending.client.access
        assert isinstance(call, WatchMembers)
        changes = self._roster.changes(call.list_id, call.state)
        members = [seen for member in changes.members if (seen := access.visible_member(member)) is not None]
        ends = [end for member, end in changes.ended if access.visible_member(member) is not None]
        return MemberChanges(self._roster.list_id, self._roster.state, changes.is_whole, members, ends)

    # --- the list ---------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._is_stopped:
            self._turn(time.monotonic())
            self._wake.wait(self._pause_s(time.monotonic()))
            self._wake.clear()

    def _pause_s(self, now: float) -> float:
        due = [_OFFER_S, self._seen.due_s(now)]
        due += [call.deadline - now for call in self._waiting.copy()]
        if now - self._watched_at < _WATCHED_S:
            due += [_LOOK_S, self._others.due_s(now)]
        return max(0.0, min(each for each in due if each is not None))

    def _turn(self, now: float) -> None:
        with self._turning:
            if now - self._offered_at >= _OFFER_S and not self._is_leaving:
                self._offered_at = now
                self._own.refresh()
            is_watched = now - self._watched_at < _WATCHED_S
            if is_watched and now - self._looked_at >= _LOOK_S:
                self._looked_at = now
                self._known_programs = self._look_at_programs()
            self._roster.update([*self._sites(now, is_watched), *self._known_programs], self._end_of)
            self._seen.forget_ends()
            self._answer(now)

    def _sites(self, now: float, is_watched: bool) -> list[Member]:
        present = self._seen.present(now)
        own = [] if self._is_leaving else [Member("site", self._site, self._site, self._own.zid, self._own.feeds)]
        return own + [
            Member("site", name, name, zid, feeds)
            for (name, zid), feeds in self._others.feeds_of(present, now, is_watched).items()
        ]

    def _look_at_programs(self) -> list[Member]:
        try:
            programs = self._programs.look()
        except HeadraceError:  # the queue was moved away: a problem of the site
            programs = []
        users = self._clients.users()
        clients = [Member("client", name, self._site, digest, (), name) for digest, name in self._clients.present()]
        return clients + [_with_user(member, users) for member in programs]

    def _end_of(self, member: Member) -> End:
        if member.role == "site":
            is_own = member.instance == self._own.zid
            stopped = End("site", member.name, member.instance, "stopped")
            return stopped if is_own else self._seen.end_of(member.name, member.instance)
        if member.role == "client":
            has_left = self._clients.has_left(member.instance)
            return End("client", member.name, member.instance, "stopped" if has_left else "lost")
        return self._programs.end_of(member)

    # --- life -------------------------------------------------------------------------------------

    def leave(self) -> None:
        """Tell other sites and the clients that watch that this site is about to stop."""
        self._is_leaving = True
        try:
            with self._turning:
                self._own.leave()
            self._turn(time.monotonic())
        except (zenoh.ZError, HeadraceError) as error:
            log.warning("that the site stops was not announced: %s", error)

    def close(self) -> None:
        """Answer every call that waits."""
        self._tokens.undeclare()
        self._is_stopped = True
        self._wake.set()
        self._thread.join()
        self._answer(time.monotonic())
        self._own.close()


def _with_user(member: Member, users: dict[tuple[str, str, int], str]) -> Member:
    """A program whose place this process holds for a client is on another machine: its user counts, not our process."""
    if member.pid != os.getpid():
        return member
    user = users.get((member.role, member.name, place_of(member)[0]), "")
    return Member(member.role, member.name, member.site, member.instance, member.feeds, user)
