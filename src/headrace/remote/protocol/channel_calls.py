"""Calls about channels, their stations and their suppliers; calls.py has all others, and says how calls travel.

A supplier is a slot that the site holds for a client, as an attachment is a consumer. Its pushes are the puts of
calls.py with the number of the supplier.
"""

from typing import Annotated

import msgspec

from headrace.relay.messages.page import Sequence64
from headrace.remote.protocol.fields import CallStruct, Options, Text
from headrace.station.leases import KEEP_S_MAX


class ListChannels(CallStruct, frozen=True):
    """The channels that the client may use."""


class OpenChannel(CallStruct, frozen=True):
    """Open a channel; with a feed or options, create it if it does not exist."""

    name: Text
    feed: Text | None
    options: Options


class DescribeChannel(CallStruct, frozen=True):
    """The definition, the statistics, or the names of the stations of a channel."""

    name: Text
    what: Annotated[str, msgspec.Meta(pattern="^(definition|statistics|stations)$")]


class ChangeChannel(CallStruct, frozen=True):
    name: Text
    options: Options


class RemoveChannel(CallStruct, frozen=True):
    name: Text
    force: bool


class OpenMember(CallStruct, frozen=True):
    """Open a station of a channel, or create it."""

    channel: Text
    name: Text
    selection: Text | None
    options: Options
    create: bool


class ChangeMember(CallStruct, frozen=True):
    channel: Text
    name: Text
    selection: Text | None
    options: Options


class OpenSupplier(CallStruct, frozen=True):
    """Become a supplier of a channel, and stay one for `keep_s` if the connection breaks."""

    channel: Text
    keep_s: Annotated[float, msgspec.Meta(ge=0, le=KEEP_S_MAX)]


class CloseSupplier(CallStruct, frozen=True):
    supplier: Sequence64


NumberedChannelCall = OpenChannel | ChangeChannel | RemoveChannel | OpenMember | ChangeMember | OpenSupplier
ChannelCall = NumberedChannelCall | ListChannels | DescribeChannel | CloseSupplier
