"""LDM's pqact.conf, translated into rules.

entry.py ──► selection.py         ──► translation.py ──► rules.toml, and remarks on what differs
lines        feeds, idents
             action.py
             substitution.py
             paths, commands
"""

from headrace.pipeline.rules.pqact.translation import Remark, Translation, translate

__all__ = ["Remark", "Translation", "translate"]
