"""Loading: from the path of a configuration to a SiteConfig, or to all that is wrong with it.

toml/document.py ──► reading.py ──► standing.py ──► rules.py ──► SiteConfig
TOML, places         keys, kinds    the queue       contradictions
        └─────────── toml/report.py: every complaint ──────────┘
"""

import os
from dataclasses import dataclass
from pathlib import Path

from headrace.site.config import LAYOUT, SiteConfig
from headrace.site.reading import read_tables
from headrace.site.rules import contradictions
from headrace.site.standing import settle_queue
from headrace.toml.document import KeyPath, Problem, config_error, read_document
from headrace.toml.report import Report
from headrace.toml.tables import given_keys


@dataclass(frozen=True, slots=True)
class Loaded:
    """A configuration, and where its values come from."""

    config: SiteConfig
    given: frozenset[KeyPath]  # what the file says itself
    queue_exists: bool  # then [queue] and the site's name are the queue's


def check_config(path: str | os.PathLike[str]) -> list[Problem]:
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
    raise config_error(examined, f"headrace config check {path}")


def _examine(path: Path) -> Loaded | list[Problem]:
    document = read_document(path, LAYOUT)
    if isinstance(document, Problem):
        return [document]
    report = Report(document, LAYOUT)
    given = given_keys(report)
    config, queue_exists = settle_queue(read_tables(report), given, report)
    found = [each for each in contradictions(config) if not any(map(report.is_wrong, each.paths))]
    for each in found:
        report.add(each.paths[0], each.problem, each.hint)
    return report.problems() or Loaded(config, given, queue_exists)
