"""ShareHandlers: execute calls about groups of processing nodes.

A call names its group, and a node also its seat and the number that proves it. So nothing is kept for a node: the
tables of groups that clients use stay mapped, and that is all. What a call may change is decided by the table itself
(share/ownership.py): a confirmation counts only from the owner of the slice, in its epoch.

Three rights: to look at the groups of a channel (`_share`), to be a node of one and stand by as its balancer
(`_joined`), and everything else, which includes moves by hand (`_managed`).
"""

from collections.abc import Mapping
from typing import Any, cast

from headrace.errors import OptionError
from headrace.queue import Queue
from headrace.remote.protocol import share_calls as calls
from headrace.remote.protocol.replies import Done, NameList, Number
from headrace.remote.protocol.share_calls import ShareStruct, slices_in
from headrace.remote.protocol.share_replies import Seated, SeatTold, ShareOpened, ShareTold, told_of
from headrace.remote.server.pending_call import PendingCall
from headrace.remote.server.seat_waits import WaitingSeats
from headrace.share.groups import GROUPS_MAX
from headrace.share.interface import Reason, ShareOptions
from headrace.share.share import Share

_PAUSE_EACH_S = 0.001  # for each node that waits here: a thousand confirmations a second leave most of a core free
_OPTIONS = frozenset(ShareOptions.__annotations__) - {"start"}


class ShareHandlers:
    """One for a site. Each method executes a call and finishes it, now or later."""

    def __init__(self, queue: Queue, waiting: WaitingSeats) -> None:
        self._queue, self._waiting = queue, waiting
        self._shares: dict[tuple[str, str], Share] = {}  # that were used, and are open

    def _check_stream(self, pending: PendingCall, stream: str) -> None:
        """Whether the client may know the groups of a channel, which may not exist."""
        if stream not in self._queue.channels():
            pending.client.access.check_absent(f"the groups of channel {stream!r}")
        pending.client.access.check_share(stream, self._queue.channel(stream).feed)

    def _share(self, pending: PendingCall, call: ShareStruct) -> Share:
        """The group, if the client may look at it."""
        share = self._shares.get((call.stream, call.group))
        if share is None or not share.is_there:
            self._check_stream(pending, call.stream)
            share = self._keep(self._queue.share(call.stream, call.group, create=False))
        pending.client.access.check_share(call.stream, share.feed)
        return share

    def _joined(self, pending: PendingCall, call: ShareStruct) -> Share:
        """The group, if the client may be one of its nodes."""
        share = self._share(pending, call)
        pending.client.access.check_join(call.stream, call.group, share.feed)
        return share

    def _managed(self, pending: PendingCall, call: ShareStruct) -> Share:
        """The group, if the client may change it."""
        share = self._share(pending, call)
        pending.client.access.check_manage(f"group {call.group!r} of channel {call.stream!r}", share.feed)
        return share

    def _led(self, pending: PendingCall, call: ShareStruct, term: int) -> Share:
        """The group, if the client may move its slices: as its balancer, or by hand."""
        return self._joined(pending, call) if term else self._managed(pending, call)

    def _keep(self, share: Share) -> Share:
        if len(self._shares) >= GROUPS_MAX:  # some of them are gone: a queue has no more
            self._shares = {key: each for key, each in self._shares.items() if each.is_there}
        self._shares[share.terms.stream, share.terms.group] = share
        return share

    # --- groups -----------------------------------------------------------------------------------

    def list(self, pending: PendingCall, call: calls.ListShares) -> None:
        """The groups that the client may use; it learns of no others."""
        shares = self._queue.shares()
        streams = {stream for stream, _ in shares} & set(self._queue.channels())
        feeds = {stream: self._queue.channel(stream).feed for stream in streams}
        usable = {stream for stream, feed in feeds.items() if pending.client.access.has_share(feed)}
        pending.finish(NameList([f"{stream}/{group}" for stream, group in shares if stream in usable]))

    def open(self, pending: PendingCall, call: calls.OpenShare) -> None:
        """An error names the terms of a group that exists, so the client must have access first."""
        self._check_stream(pending, call.stream)
        if (call.stream, call.group) not in self._queue.shares():
            feed = self._queue.channel(call.stream).feed
            pending.client.access.check_manage(f"group {call.group!r} of channel {call.stream!r}", feed)
        share = self._queue.share(call.stream, call.group, create=call.create, start=call.start, **_given(call.options))
        self._keep(share)
        pending.finish(ShareOpened(share.terms, share.feed))

    def describe(self, pending: PendingCall, call: calls.DescribeShare) -> None:
        share = self._share(pending, call)
        if call.what == "state":
            state = share.state()
            pending.finish(told_of(state, [pending.client.access.visible_node(node) for node in state.nodes]))
        elif call.what == "history":
            pending.finish(ShareTold(history=share.history()))
        else:
            pending.finish(ShareTold(parked=share.parked()))

    def remove(self, pending: PendingCall, call: calls.RemoveShare) -> None:
        self._managed(pending, call).remove()
        self._shares.pop((call.stream, call.group), None)
        pending.finish(Done())

    def unpark(self, pending: PendingCall, call: calls.UnparkProducts) -> None:
        pending.finish(ShareTold(parked=self._managed(pending, call).unpark(call.sequences)))

    # --- nodes ------------------------------------------------------------------------------------

    def join(self, pending: PendingCall, call: calls.JoinShare) -> None:
        seat = self._joined(pending, call).join(
            call.node, instance=call.instance, user=pending.client.name, pid=call.pid & 0xFFFFFFFF,
            may_vary=call.may_vary,
        )  # fmt: skip
        pending.finish(Seated(seat.number, seat.name))

    def exchange(self, pending: PendingCall, call: calls.Exchange) -> None:
        progress = call.progress()
        seat = self._joined(pending, call).seat(call.seat, call.instance)
        pending.finish(SeatTold.of(seat.exchange(progress), _PAUSE_EACH_S * len(self._waiting)))

    def watch(self, pending: PendingCall, call: calls.WatchSeat) -> None:
        self._waiting.add(pending, call, self._joined(pending, call))

    def begin_product(self, pending: PendingCall, call: calls.BeginProduct) -> None:
        seat = self._joined(pending, call).seat(call.seat, call.instance)
        pending.finish(Number(int(seat.begin(call.slice, call.epoch, call.sequence))))

    def fail_product(self, pending: PendingCall, call: calls.FailProduct) -> None:
        seat = self._joined(pending, call).seat(call.seat, call.instance)
        pending.finish(Number(seat.fail(call.slice, call.epoch, call.sequence)))

    def park_product(self, pending: PendingCall, call: calls.ParkProduct) -> None:
        seat = self._joined(pending, call).seat(call.seat, call.instance)
        pending.finish(Number(int(seat.park(call.slice, call.epoch, call.sequence, call.error))))

    def leave(self, pending: PendingCall, call: calls.LeaveSeat) -> None:
        self._joined(pending, call).seat(call.seat, call.instance).leave()
        pending.finish(Done())

    # --- balancers --------------------------------------------------------------------------------

    def lead(self, pending: PendingCall, call: calls.LeadShare) -> None:
        pending.finish(Number(self._joined(pending, call).lead(call.balancer, call.lease_s, yields=call.yields)))

    def move(self, pending: PendingCall, call: calls.MoveSlices) -> None:
        slices, share = slices_in(call.slices), self._led(pending, call, call.term)
        pending.finish(Number(share.begin(call.term, call.giver, call.taker, slices, _reason(call.reason))))

    def cancel(self, pending: PendingCall, call: calls.CancelMoves) -> None:
        slices = slices_in(call.slices)
        pending.finish(Number(self._led(pending, call, call.term).cancel(call.term, slices)))

    def give(self, pending: PendingCall, call: calls.GiveSlices) -> None:
        slices, share = slices_in(call.slices), self._led(pending, call, call.term)
        pending.finish(Number(share.give(call.term, call.taker, slices, _reason(call.reason))))

    def seize(self, pending: PendingCall, call: calls.SeizeSeat) -> None:
        pending.finish(Number(self._led(pending, call, call.term).seize(call.term, call.seat)))

    def drain(self, pending: PendingCall, call: calls.DrainSeat) -> None:
        self._managed(pending, call).drain(call.seat)
        pending.finish(Done())


def _given(options: Mapping[str, Any]) -> Any:
    """Options from a call; the group checks their values."""
    unknown = sorted(set(options) - _OPTIONS)
    if unknown:
        raise OptionError(f"a group has no option {unknown[0]!r}", f"its options are {', '.join(sorted(_OPTIONS))}")
    return dict(options)


def _reason(text: str) -> Reason:
    return cast(Reason, text)  # its decoder has checked it
