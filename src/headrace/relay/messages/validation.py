"""Validation: is a decoded page or beat consistent with its key and with the site?

A principal that may publish under a site's key can publish anything there. So each message is compared with what is
known of the site, and with itself: a message does not speak for another site or stream, and does not bring products
under another feed's key; a live page has products, and covers no more than them. A message that jumps further ahead
than a site can get between two beats is a leap; it is believed only after the site's log has been queried.

Not here: who may publish under which key (link/access.py), which products a site may bring (receive/admission.py), and
whether a message can be decoded at all (page.py, beat.py).
"""

from headrace.errors import FabricMessageError
from headrace.link.keys import OWN
from headrace.relay.messages.beat import Beat
from headrace.relay.messages.page import Page, PageHead
from headrace.relay.messages.query import IdentifyReply

_LEAP = 1 << 24  # products; more do not arrive between two beats


def is_leap(upto: int, base: int) -> bool:
    """Whether `upto` is too far ahead of `base`, up to which everything has arrived."""
    return upto > base + _LEAP


def check_page(page: Page, site: str) -> None:
    """FabricMessageError unless the page is of this site."""
    if page.head.site != site:
        raise _invalid(f"a page from site {site} names site {page.head.site} as its sender")


def check_identity(identity: IdentifyReply) -> None:
    """FabricMessageError unless the reply agrees with itself."""
    if identity.oldest > identity.next:
        raise _invalid(f"the log of site {identity.site} begins at {identity.oldest}, behind its end {identity.next}")


def check_extent(head: PageHead, end: int) -> None:
    """FabricMessageError if a page from a log covers what that log cannot have; `end` is its end, as last heard."""
    if head.upto > head.after and (head.upto >= head.head or is_leap(head.upto, end)):
        raise _invalid(f"a page of site {head.site} ends at {head.upto}, behind the end of its log")


def _is_all(page: Page, column: str, name: str) -> bool:
    """Whether all products have this name in the column."""
    numbers = page.columns[column]
    return page.batch.name(int(numbers[0])) == name and (len(page) == 1 or not bool((numbers != numbers[0]).any()))


def check_live(page: Page, site: str, feed: str) -> None:
    """FabricMessageError unless the page is valid under the key of this feed."""
    check_page(page, site)
    if not len(page) or not _is_all(page, "feed", feed):
        raise _invalid(f"a live page from site {site} does not have the feed of its key, {feed!r}")
    if int(page.sequences[-1]) != page.head.upto:
        raise _invalid(f"a live page from site {site} covers more than its products")
    if page.head.stream == OWN and int(page.columns["previous"][0]) > page.head.after:
        raise _invalid(f"a live page from site {site} claims to begin before its products")


def check_beat(beat: Beat, site: str, stream: str) -> None:
    """FabricMessageError unless the beat is of this site and stream, and consistent."""
    if (beat.site, beat.stream) != (site, stream):
        raise _invalid(f"a beat from site {site}, stream {stream} names site {beat.site}, stream {beat.stream}")
    if beat.left_out > beat.examined:
        raise _invalid(f"a beat from site {site} has left out products that it has not examined")


def _invalid(problem: str) -> FabricMessageError:
    return FabricMessageError(problem, "it was refused; restrict in [[allow]] who may publish")
