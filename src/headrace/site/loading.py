"""Loading: from the path of a configuration to a SiteConfig, or to all that is wrong with it.

document.py ──► reading.py ──► standing.py ──► rules.py ──► SiteConfig
TOML, places    keys, kinds    the queue       contradictions
                        └────────── report.py: every complaint ──────────┘
"""

import os
from dataclasses import dataclass
from pathlib import Path

from headrace.errors import ConfigError
from headrace.site.complaint import Complaint
from headrace.site.config import SiteConfig
from headrace.site.document import KeyPath, read_document
from headrace.site.reading import given_keys, read_tables
from headrace.site.report import Report
from headrace.site.rules import contradictions
from headrace.site.standing import settle_queue


@dataclass(frozen=True, slots=True)
class Loaded:
    """A configuration, and where its values come from."""

    config: SiteConfig
    given: frozenset[KeyPath]  # what the file says itself
    queue_exists: bool  # then [queue] and the site's name are the queue's


def check_config(path: str | os.PathLike[str]) -> list[Complaint]:
    """Everything that is wrong with the file, in its order; nothing is changed anywhere."""
    examined = _examine(Path(path))
    return [] if isinstance(examined, Loaded) else examined


def load_config(path: str | os.PathLike[str]) -> SiteConfig:
    """The configuration; ConfigError tells the first mistake, and has all of them as `complaints`."""
    return load(path).config


def load(path: str | os.PathLike[str]) -> Loaded:
    """As `load_config`, with the origin of each value."""
    examined = _examine(Path(path))
    if isinstance(examined, Loaded):
        return examined
    first, more = examined[0], len(examined) - 1
    if not more:
        raise ConfigError(str(first), first.hint, tuple(examined))
    others = f"{more} more mistake" + "s" * (more > 1)
    hint = f"{first.hint}; all are told by: headrace config check {path}"
    raise ConfigError(f"{first} (and {others})", hint, tuple(examined))


def _examine(path: Path) -> Loaded | list[Complaint]:
    document = read_document(path)
    if isinstance(document, Complaint):
        return [document]
    report = Report(document)
    given = given_keys(document)
    config, queue_exists = settle_queue(read_tables(document, report), given, report)
    found = [each for each in contradictions(config) if not any(map(report.is_wrong, each.paths))]
    for each in found:
        report.add(each.paths[0], each.problem, each.hint)
    return report.complaints() or Loaded(config, given, queue_exists)
