"""Audience: for whom a stream is made, and what that may hear.

Who may receive everything shares the streams `own` and those of equal selections. Anybody else has streams of its own:
they have only products that it may receive, and their names begin with its name, so that the rules of every site on the
way give their pages and beats to nobody else (link/access.py). So a beat tells nothing about other feeds, and nothing
about what somebody else has asked for.

The name is that of the principal, not one of its rights: sites on the way have rules of their own, and know nothing of
ours but the names.
"""

from dataclasses import dataclass

from headrace.link.keys import audience_stream
from headrace.link.rights import EVERY_FEED, Feeds


@dataclass(frozen=True, slots=True)
class Audience:
    """A principal (None: those without a name), and the feeds that it may receive."""

    principal: str | None = None
    feeds: Feeds = EVERY_FEED

    @property
    def hears_all(self) -> bool:
        """Whether it may share streams, and know everything about this site's products."""
        return self.feeds.is_all

    def stream(self, digest: str) -> str:
        """The name of its stream for a selection with this digest."""
        return digest if self.hears_all else audience_stream(self.principal, digest)
