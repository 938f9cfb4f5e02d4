"""Local and remote classes implement the Protocols of queue/interface.py, and neither inherits from the other."""

import pytest

from headrace import Channel
from headrace.channel.supplier import Supplier
from headrace.log.follow import Follower
from headrace.queue import (
    AnyChannel,
    AnyConsumer,
    AnyCursor,
    AnyFollower,
    AnyQueue,
    AnyStation,
    AnySupplier,
    Cursor,
    Queue,
)  # fmt: skip
from headrace.remote.client.channel import RemoteChannel
from headrace.remote.client.consumer import RemoteConsumer
from headrace.remote.client.cursor import RemoteCursor
from headrace.remote.client.follower import RemoteFollower
from headrace.remote.client.queue import RemoteQueue
from headrace.remote.client.share import RemoteSeat, RemoteShare
from headrace.remote.client.station import RemoteStation
from headrace.remote.client.supplier import RemoteSupplier
from headrace.share.interface import AnySeat, AnyShare
from headrace.share.share import Seat, Share
from headrace.station import Consumer, Station

KINDS = [
    (AnyQueue, Queue, RemoteQueue),
    (AnyCursor, Cursor, RemoteCursor),
    (AnyFollower, Follower, RemoteFollower),
    (AnyStation, Station, RemoteStation),
    (AnyConsumer, Consumer, RemoteConsumer),
    (AnyChannel, Channel, RemoteChannel),
    (AnySupplier, Supplier, RemoteSupplier),
    (AnyShare, Share, RemoteShare),
    (AnySeat, Seat, RemoteSeat),
]
NEEDS_FILES = {"check", "delete", "resize"}  # refused by a remote queue
REMOTE_ONLY = {AnyQueue: NEEDS_FILES | {"site"}}
SET_BY_INIT = {
    "channel_name",
    "feed",
    "name",
    "number",
    "path",
    "position",
    "station_name",
    "terms",
}  # attributes of instances, which the classes do not show


def public(kind: type) -> set[str]:
    return {name for name in vars(kind) if not name.startswith("_")} - SET_BY_INIT


@pytest.mark.parametrize(("protocol", "here", "remote"), KINDS)
def test_a_local_class_has_every_member_of_the_protocol(protocol: type, here: type, remote: type) -> None:
    """mypy proves more, at the two ways out of `headrace.connect`: the signatures fit as well."""
    assert public(protocol) <= public(here)


@pytest.mark.parametrize(("protocol", "here", "remote"), KINDS)
def test_a_remote_class_offers_the_protocol_and_nothing_else(protocol: type, here: type, remote: type) -> None:
    assert not issubclass(remote, here)
    assert public(remote) - public(protocol) == REMOTE_ONLY.get(protocol, set())
    assert public(protocol) <= public(remote)
