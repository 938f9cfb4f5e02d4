"""LazyGroup: a click group that knows its commands by name and imports one when it is called.

The library below loads NumPy and Arrow; a help page needs neither. The one-line help of each command therefore stands
in the table, beside the place where the command is found.
"""

import importlib
import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import click


@dataclass(frozen=True, slots=True)
class Place:
    """Where a command is: `module:attribute`, and what its group's help says of it."""

    target: str
    help: str

    @property
    def module(self) -> str:
        return self.target.partition(":")[0]

    def load(self) -> click.Command:
        command = getattr(importlib.import_module(self.module), self.target.partition(":")[2])
        assert isinstance(command, click.Command)
        return command


class LazyGroup(click.Group):
    """A group whose commands are places; one whose module is not installed is left out."""

    def __init__(self, name: str | None = None, *, places: Mapping[str, Place], **settings: Any) -> None:
        super().__init__(name, no_args_is_help=False, **settings)
        self._places = {name: place for name, place in places.items() if importlib.util.find_spec(place.module)}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._places)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        place = self._places.get(cmd_name)
        return place.load() if place else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """As click does it, from the table instead of from the commands."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, place.help) for name, place in self._places.items()])
