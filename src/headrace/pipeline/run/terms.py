"""Terms of a loaded rule file, whose defaults are filled in, as the parts of a job need them."""

from pathlib import Path

import msgspec

from headrace.link.login import Login
from headrace.pipeline.rules.rule import PipelineTerms, RuleFile
from headrace.pipeline.run.sharing import Query
from headrace.pipeline.source.open_queues import QueueAddress
from headrace.pipeline.source.ranges import LATEST
from headrace.toml.kinds import START


def address_of(terms: PipelineTerms) -> QueueAddress:
    return QueueAddress(None if terms.queue is None else str(terms.queue), terms.site, login_of(terms))


def login_of(terms: PipelineTerms) -> Login:
    """The login that the file names, or else the environment, towards every site that the pipeline connects to."""
    if terms.tls is None and terms.user is None:
        return Login.from_environment()
    files = {} if terms.tls is None else msgspec.structs.asdict(terms.tls)
    if terms.user is not None:
        files["password_file"] = terms.user.password_file
    user = None if terms.user is None else terms.user.name
    return Login(user, **{field: str(path) for field, path in files.items() if path is not None})


def name_of(file: RuleFile) -> str:
    assert file.pipeline.name is not None
    return file.pipeline.name


def station_of(file: RuleFile, query: Query) -> str:
    return f"pipeline-{name_of(file)}-{query.name}"


def checkpoint_of(terms: PipelineTerms) -> Path:
    assert terms.checkpoint is not None
    return terms.checkpoint


def dead_letters(terms: PipelineTerms) -> Path:
    assert terms.tables is not None
    return terms.tables / terms.dead_letters


def starting_offsets(terms: PipelineTerms) -> str:
    """The key `from` as the source's option startingOffsets."""
    return LATEST if terms.start == "now" else str(START.write(terms.start))
