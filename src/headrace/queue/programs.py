"""Programs: the suppliers and consumers of a queue, as its files show them.

Every process with the queue open sees the same, also those of remote clients, whose places a site holds. A place is
held by a lock, so a member leaves when its process ends, however that happens; a program that detaches or closes notes
that in its place, until another one takes it.
"""

from contextlib import suppress
from pathlib import Path

from headrace.channel.document import FOLDER, Definition, DefinitionFile
from headrace.channel.slots import connected_suppliers
from headrace.channel.slots import left_cleanly as supplier_left_cleanly
from headrace.errors import ChannelError, QueueDamagedError, StationError, StationMissingError
from headrace.queue.members import End, Member, Role
from headrace.selection import Selection
from headrace.station.stations import Stations
from headrace.station.terms import StationTerms

PROGRAMS_MAX = 8192  # suppliers, and consumers, that are listed


class Programs:
    """The programs of one queue. `site` is the name of its site, if it has one."""

    def __init__(self, path: Path, stations: Stations, site: str = "") -> None:
        self._folder, self._definitions = path / FOLDER, DefinitionFile(path)
        self._stations, self._site = stations, site

    def look(self) -> list[Member]:
        """All that are connected now, in the order of the names."""
        channels = sorted(self._definitions.read().channels.values(), key=lambda each: each.name)
        suppliers = [member for channel in channels for member in self._suppliers(channel)]
        stations = sorted(self._stations.document.stations, key=lambda each: each.name)
        consumers = [member for terms in stations for member in self._consumers(terms)]
        return suppliers[:PROGRAMS_MAX] + consumers[:PROGRAMS_MAX]

    def _suppliers(self, channel: Definition) -> list[Member]:
        connected, _ = connected_suppliers(self._file(channel))
        return [
            self._member("supplier", channel.name, each.slot, each.since_ns, channel.feed, each.pid)
            for each in connected
        ]

    def _consumers(self, terms: StationTerms) -> list[Member]:
        feed = Selection.parse(terms.selection).feed or "**"
        with suppress(StationMissingError):  # removed meanwhile
            return [
                self._member("consumer", terms.name, each.place, each.attached_ns, feed, each.pid)
                for each in self._stations.chain(terms.chain).consumers(terms.name, terms.member)
                if each.alive
            ]
        return []

    def _member(self, role: Role, name: str, place: int, since_ns: int, feed: str, pid: int) -> Member:
        return Member(role, name, self._site, f"{place}-{since_ns}", (feed,), "", pid)

    def end_of(self, member: Member) -> End:
        """How a supplier or consumer left: `stopped` if it said so, otherwise `lost`."""
        place, since_ns = place_of(member)
        cleanly = False
        with suppress(StationError, ChannelError, QueueDamagedError, OSError):  # what it belonged to is gone
            if member.role == "supplier":
                channel = self._definitions.read().channels.get(member.name)
                cleanly = channel is not None and supplier_left_cleanly(self._file(channel), place, since_ns)
            else:
                terms = self._stations.document.find(member.name)
                chain = None if terms is None else self._stations.chain(terms.chain)
                cleanly = chain is not None and chain.kernel.left_cleanly(place, since_ns)
        return End(member.role, member.name, member.instance, "stopped" if cleanly else "lost")

    def _file(self, channel: Definition) -> Path:
        return self._folder / f"{channel.number}.suppliers"


def place_of(member: Member) -> tuple[int, int]:
    """The place of a supplier or consumer, and since when it has it."""
    place, _, since_ns = member.instance.partition("-")
    return int(place), int(since_ns)
