"""LDM's pqact.conf, translated into rules.

entry.py ──► feedtype.py, pattern.py, argument.py ──► translation.py ──► rules.toml, and what could not be
lines        feeds        idents      templates
"""

from headrace.pipeline.rules.pqact.selection import FEEDS
from headrace.pipeline.rules.pqact.translation import Remark, Translation, translate

__all__ = ["FEEDS", "Remark", "Translation", "translate"]
