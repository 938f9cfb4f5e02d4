"""Which right each call needs, before anything of it is looked at: its payload, its names, its selection.

A principal needs one of the rights listed, for any feeds at all; which feeds, whose stations and whose cursors, the
handlers decide (access.py). So a principal that may not publish anything makes the site keep no byte of a payload. A
call that is not listed is refused to everybody: a new call is allowed here, or it does not work.

    tests/remote/test_call_rights.py has the outcome of every call for every kind of principal.
"""

from headrace.link.rights import RIGHTS
from headrace.remote.protocol import calls, channel_calls, member_calls, share_calls

Needed = frozenset[str]

_ANY: Needed = frozenset((*RIGHTS, "consume"))
_READ: Needed = frozenset(("receive",))
_PUT: Needed = frozenset(("publish",))
_MANAGE: Needed = frozenset(("manage",))
_HAVE: Needed = frozenset(("station", "manage"))  # stations, one's own or all
_USE: Needed = frozenset(("station", "manage", "consume"))
_JOIN: Needed = frozenset(("manage", "consume"))

NEEDED: dict[type, Needed] = {
    # the queue
    calls.Identify: _ANY, calls.Resolve: _ANY, calls.GetBounds: _ANY, calls.GetStatistics: _ANY,
    calls.ListNames: _ANY, calls.WantedBy: _READ | _PUT, calls.GetDictionary: _READ | _USE,
    calls.PutOne: _PUT, calls.PutMany: _PUT, calls.PutBatch: _PUT, calls.PutPart: _PUT, calls.AddDictionary: _PUT,
    calls.Flush: _PUT | _MANAGE, calls.ReadProducts: _READ, calls.ReadPart: _READ, calls.Weigh: _READ,
    # cursors
    calls.OpenCursor: _READ | _MANAGE, calls.LoadCursor: _READ | _MANAGE, calls.SaveCursor: _READ | _MANAGE,
    calls.RemoveCursor: _READ | _MANAGE,
    # stations
    calls.ListStations: _READ | _MANAGE, calls.OpenStation: _READ | _MANAGE, calls.DescribeStation: _READ | _MANAGE,
    calls.ChangeStation: _HAVE, calls.PauseStation: _HAVE, calls.SeekStation: _HAVE, calls.RemoveStation: _HAVE,
    calls.Unpark: _HAVE,
    # consumers
    calls.Attach: _USE, calls.Get: _USE, calls.Settle: _USE, calls.Revise: _USE, calls.Interrupt: _USE,
    calls.DescribeConsumer: _USE, calls.Detach: _ANY, calls.Leave: _ANY,
    # channels
    channel_calls.ListChannels: _ANY, channel_calls.DescribeChannel: _ANY, channel_calls.OpenChannel: _ANY,
    channel_calls.ChangeChannel: _MANAGE, channel_calls.RemoveChannel: _MANAGE,
    channel_calls.OpenMember: _READ | _MANAGE, channel_calls.ChangeMember: _HAVE, channel_calls.OpenSupplier: _PUT,
    channel_calls.CloseSupplier: _ANY,
    # members
    member_calls.WatchMembers: _ANY,
    # groups of nodes
    share_calls.ListShares: _READ | _MANAGE, share_calls.DescribeShare: _READ | _MANAGE,
    share_calls.OpenShare: _READ | _MANAGE, share_calls.RemoveShare: _MANAGE, share_calls.UnparkProducts: _MANAGE,
    share_calls.DrainSeat: _MANAGE, share_calls.JoinShare: _JOIN, share_calls.Exchange: _JOIN,
    share_calls.WatchSeat: _JOIN, share_calls.BeginProduct: _JOIN, share_calls.FailProduct: _JOIN,
    share_calls.ParkProduct: _JOIN, share_calls.LeaveSeat: _JOIN, share_calls.LeadShare: _JOIN,
    share_calls.MoveSlices: _JOIN, share_calls.CancelMoves: _JOIN, share_calls.GiveSlices: _JOIN,
    share_calls.SeizeSeat: _JOIN,
}  # fmt: skip
