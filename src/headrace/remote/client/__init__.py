"""A queue elsewhere, used as if it were here."""
