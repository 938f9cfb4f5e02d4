"""ChannelContext: what the parts of a channel need of it.

Stations, suppliers and the channel itself stand on the same things: the log, the stations of the queue, the file of
definitions and the channel's name. The definition is always the current one; another process may change it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from headrace.channel.document import FOLDER, ChannelDocument, Definition, DefinitionFile
from headrace.errors import ChannelMissingError
from headrace.log.log import Log
from headrace.station.stations import Stations


@dataclass(frozen=True, slots=True)
class ChannelContext:
    """A channel of an open queue."""

    log: Log
    stations: Stations  # of the whole queue, those of other channels included
    file: DefinitionFile
    name: str
    groups: Callable[[str], list[str]]  # of processing nodes that share the channel of this name

    @property
    def definition(self) -> Definition:
        """The channel as it is now; ChannelMissingError if it was removed."""
        return definition_of(self.log.path, self.file.read(), self.name)

    def now_ns(self) -> int:
        """The time of day, by the clock of the queue."""
        return self.stations.time_ns()

    def suppliers_file(self, definition: Definition) -> Path:
        """Where the slots of the channel's suppliers are."""
        return self.log.path / FOLDER / f"{definition.number}.suppliers"


def definition_of(path: Path, document: ChannelDocument, name: str) -> Definition:
    """The definition of a channel; ChannelMissingError names the channels that exist."""
    definition = document.channels.get(name)
    if definition is None:
        known = ", ".join(sorted(document.channels))
        hint = f"its channels are: {known}" if known else "create it: headrace channel create"
        raise ChannelMissingError(f"{path} has no channel {name!r}", hint)
    return definition
