"""The queue of another site, used as if it were on this machine; docs/remote.md lists the differences.

protocol/   calls and replies, as plain data
client/     `connect`, and the remote queue, cursor, follower, station and consumer
server/     what a site does for its clients
"""

from headrace.remote.client.connect import connect

__all__ = ["connect"]
