"""Problems of the audit log: it cannot be written."""

from collections.abc import Iterator

from headrace.link.audit import Audit
from headrace.relay.messages.description import Problem
from headrace.units import format_count

KIND = "audit"


def audit_problems(audit: Audit) -> Iterator[Problem]:
    """One, as long as the last line could not be written."""
    told = audit.statistics()
    if told.failure:
        yield Problem(
            KIND, "", f"the audit log cannot be written: {told.failure}; {format_count(told.failed, 'line')} missing",
            "free some space, or correct the permissions of site/audit in the directory of the queue",
        )  # fmt: skip
