"""Queue terms: the configuration, compared with the queue that exists already.

An existing queue keeps its terms, whatever the file says. A file that says otherwise is therefore invalid, and the
problem shows both values. Keys that are not given are taken from the queue. Nothing is created or changed here.
"""

import os
from pathlib import Path
from typing import Any

import msgspec

from headrace.errors import QueueError
from headrace.log.config import QueueConfig, default_origin, read_config
from headrace.log.rights import rights_of
from headrace.site.config import QueueTable, SiteConfig
from headrace.toml.document import KeyPath
from headrace.toml.layout import keys_of
from headrace.toml.report import Report

_QUEUE = ("site", "queue")


def adopt_queue_terms(config: SiteConfig, given: frozenset[KeyPath], report: Report) -> tuple[SiteConfig, bool]:
    """The configuration with the terms and the name of the existing queue, and whether there is one."""
    terms = None if report.is_wrong(_QUEUE) else _terms(config.site.queue, report)
    name = default_origin() if terms is None else terms.origin
    if terms is not None:
        rights = rights_of(config.site.queue)
        table = QueueTable(
            size=terms.size, age_s=terms.age_s, durability=terms.durability, dedup=terms.dedup, hash=terms.hash,
            mode=f"{rights.mode:04o}", group=rights.group,
        )  # fmt: skip
        _compare_name(config, terms, report)
        _compare_terms(config, table, given, report)
        config = msgspec.structs.replace(config, queue=table)
    site = msgspec.structs.replace(config.site, name=config.site.name or name)
    return msgspec.structs.replace(config, site=site), terms is not None


def _terms(path: Path, report: Report) -> QueueConfig | None:
    """The terms of the queue at `path`; None if there is none, or if the path is invalid."""
    try:
        if path.is_dir() and any(path.iterdir()):
            return read_config(path)
        if os.path.lexists(path) and not path.is_dir():
            report.add(
                _QUEUE, f"{path} is not a folder", "give the folder of a queue, or a path that does not exist yet"
            )
            return None
    except QueueError as error:
        report.refuse(_QUEUE, error)
        return None
    except OSError as error:
        report.add(
            _QUEUE, f"{path} is not accessible: {error.strerror}", "correct the path, or its owner and permissions"
        )
        return None
    _check_parent(path, report)
    return None


def _check_parent(path: Path, report: Report) -> None:
    """Report if the queue could not be created there."""
    parent = next(folder for folder in path.parents if os.path.lexists(folder))
    if not parent.is_dir():
        report.add(_QUEUE, f"{path} is invalid: {parent} is not a folder", "choose another path")
    elif not os.access(parent, os.W_OK | os.X_OK):
        hint = "choose another path, or change its owner or permissions"
        report.add(_QUEUE, f"{path} cannot be created: {parent} is not writable by this user", hint)


def _compare_name(config: SiteConfig, terms: QueueConfig, report: Report) -> None:
    path = ("site", "name")
    if config.site.name and config.site.name != terms.origin and not report.is_wrong(path):
        report.add(
            path,
            f"{config.site.name!r} is not the origin of {config.site.queue}, which is {terms.origin!r}",
            f'write name = "{terms.origin}", leave it out, or choose another queue',
        )


def _compare_terms(config: SiteConfig, held: QueueTable, given: frozenset[KeyPath], report: Report) -> None:
    for key in keys_of(QueueTable):
        path = ("queue", key.name)
        said, kept = getattr(config.queue, key.field), getattr(held, key.field)
        if path in given and said != kept and not report.is_wrong(path):
            shown = key.kind.write(said)
            report.add(
                path,
                f'"{shown}" differs from {config.site.queue}, which has {_held_text(key.name, key.kind.write, kept)}',
                _remedy(key.name, shown, kept, key.kind.write, config.site.queue),
            )


def _held_text(key: str, write: Any, held: Any) -> str:
    if held is None:
        return "no group of its own" if key == "group" else "no limit"
    return f'"{write(held)}"'


def _remedy(key: str, said: str, held: Any, write: Any, path: Path) -> str:
    here = f"leave {key} out here" if held is None else f'write {key} = "{write(held)}" here'
    if key in ("size", "age"):
        return f"run: headrace queue resize {path} --{key} {said}, or {here}"
    return f"a queue keeps its {key}: {here}, or choose another queue"
