"""Channel terms: each [[channel]] of a configuration, compared with the channels that the queue has already.

A channel is changed at run time (`headrace channel change`, `headrace queue train`), and the file is not. At its next
start the site would find that the two differ, and not start. Its error and `headrace config check`, which tells it in
advance, say the same: what differs, and what to write or to run.

The compression of a channel concerns no station, and training a dictionary is routine, so `compress` and `dictionary`
that the file does not name are whatever the channel has. Every other key that the file leaves out leaves its option
open, and a channel that has it set differs.

`check_channels` changes nothing, and does not open the queue.
"""

import shlex
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from headrace.channel.compression import COMPRESSION_OPTIONS, compression_options
from headrace.channel.creation import agree_on_new, training
from headrace.channel.document import ChannelDocument, Definition, DefinitionFile
from headrace.channel.qos import DEFAULTS, FIELDS
from headrace.channel.slicing import SLICING_OPTIONS, read_slicing
from headrace.channel.subtree import Subtree
from headrace.errors import ChannelExistsError, DictionaryError, HeadraceError
from headrace.log.dictionaries import Dictionaries
from headrace.queue import Queue
from headrace.site.channels import ChannelTable
from headrace.site.config import SiteConfig
from headrace.toml.kinds import toml_lines
from headrace.toml.layout import Key, keys_of
from headrace.toml.report import Report

_FIXED = ("feed", "home", *SLICING_OPTIONS)  # never change


class Difference(NamedTuple):
    """One key, as the channel has it and as the file says; None: not set."""

    key: str
    held: Any
    said: Any

    @property
    def to_write(self) -> str:
        """What makes the file agree with the channel."""
        if self.held is None:
            return f"leave {self.key} out"
        return f"write {toml_lines({self.key: self.held})[0]}"


def check_channels(config: SiteConfig, report: Report) -> None:
    """Report everything about [[channel]] that would keep the site from starting with the queue as it is now."""
    path = config.site.queue
    try:
        document = DefinitionFile(path).read() if config.channel else ChannelDocument()
    except HeadraceError as error:
        report.refuse(("site", "queue"), error)
        return
    for place, channel in enumerate(config.channel):
        definition = document.channels.get(channel.name)
        if definition is None:
            _check_new(channel, place, document, path, report)
            continue
        for each in differences(channel, definition):
            said = f"{each.key} is not set" if each.said is None else toml_lines({each.key: each.said})[0]
            problem = f"{said}; channel {channel.name!r} of {path} has {_held_text(each)}"
            remedy = f"{each.to_write} here, or {_other_remedy(path, channel, [each])}"
            at = ("channel", place, each.key) if each.said is not None else ("channel", place)
            report.add(at, problem, remedy)


def _check_new(channel: ChannelTable, place: int, document: ChannelDocument, path: Path, report: Report) -> None:
    subtree, dictionaries = Subtree.of(channel.feed), Dictionaries(path)
    try:
        agree_on_new(document, dictionaries, channel.name, subtree, channel.options(), time.time_ns())
    except DictionaryError as error:
        if (path / "queue.json").exists():
            report.refuse(("channel", place, "dictionary"), error)
        else:
            remedy = (
                f"leave dictionary out here, and train one later: {training(dictionaries, channel.name, subtree)}; to "
                f"use that of another queue, create this queue first, by starting the site without it, and copy "
                f"{channel.dictionary}.dictionary from there to {dictionaries.folder}"
            )
            report.add(("channel", place, "dictionary"), error.problem, remedy)
    except HeadraceError as error:
        report.refuse(("channel", place), error)


def open_channels(channels: tuple[ChannelTable, ...], queue: Queue) -> None:
    """Create the channels that the queue lacks; ChannelExistsError, before that, if one exists on other terms."""
    document = DefinitionFile(queue.path).read()
    for channel in channels:
        if channel.name in document.channels:
            _refuse_differences(channel, document.channels[channel.name], queue.path)
    for channel in channels:
        if channel.name in document.channels:
            queue.channel(channel.name)
        else:
            queue.channel(channel.name, channel.feed, **channel.options())


def _refuse_differences(channel: ChannelTable, definition: Definition, path: Path) -> None:
    """ChannelExistsError, with every difference and its remedy, if the channel has other terms than the file says."""
    found = list(differences(channel, definition))
    if found:
        terms = "; ".join(f"{each.key} {_text(each.held)}, not {_text(each.said)}" for each in found)
        writing = ", ".join(each.to_write for each in found)
        raise ChannelExistsError(
            f"channel {channel.name!r} exists on other terms: it has {terms}",
            f"in [[channel]] of the configuration, {writing}; or {_other_remedy(path, channel, found)}",
        )


def differences(channel: ChannelTable, definition: Definition) -> Iterator[Difference]:
    """Each key in which the file and the channel disagree."""
    said, held = _said(channel), _held(definition)
    for key in keys_of(ChannelTable):
        if key.field in said and said[key.field] != held.get(key.field):
            yield Difference(key.name, _written(key, held.get(key.field)), _written(key, getattr(channel, key.field)))


def _said(channel: ChannelTable) -> dict[str, Any]:
    """The fields that the file decides, as a channel that it creates would have them."""
    terms: dict[str, Any] = {"feed": channel.feed}
    for field in FIELDS.values():
        given = getattr(channel, field)
        terms[field] = getattr(DEFAULTS, field) if given is None else given
    slicing, _ = read_slicing(channel.options())
    terms |= {option: getattr(slicing, option, None) for option in SLICING_OPTIONS}
    return terms | {option: value for option in COMPRESSION_OPTIONS if (value := getattr(channel, option)) is not None}


def _held(definition: Definition) -> Mapping[str, Any]:
    qos = {field: getattr(definition.qos, field) for field in FIELDS.values()}
    slicing = {option: getattr(definition.slicing, option, None) for option in SLICING_OPTIONS}
    return {"feed": definition.feed, **qos, **slicing, **compression_options(definition.compression)}


def _written(key: Key, value: Any) -> Any:
    return None if value is None else key.kind.write(value)


# --- words ----------------------------------------------------------------------------------------


def _text(value: Any) -> str:
    return "none" if value is None else str(value)


def _held_text(difference: Difference) -> str:
    return "none" if difference.held is None else f'"{difference.held}"'


def _other_remedy(path: Path, channel: ChannelTable, found: list[Difference]) -> str:
    """What makes the channel agree with the file instead."""
    fixed = [each.key for each in found if each.key in _FIXED]
    if fixed:
        return f"choose another name: a channel keeps its {', '.join(fixed)}"
    options = [f"--{each.key.replace('_', '-')} {shlex.quote(_text(each.said))}" for each in found]
    command = f"run: headrace channel change {shlex.quote(str(path))} {channel.name} {' '.join(options)}"
    wanted, dictionaries = channel.dictionary, Dictionaries(path)
    is_missing = wanted is not None and not (dictionaries.folder / f"{wanted}.dictionary").exists()
    if not is_missing or all(each.key != "dictionary" for each in found):
        return command
    place = dictionaries.folder / f"{wanted}.dictionary"
    return f"copy dictionaries/{wanted}.dictionary of another queue, which this one lacks, to {place}, and {command}"
