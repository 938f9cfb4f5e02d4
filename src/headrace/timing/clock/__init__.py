"""One clock: right to a stated bound, and never backwards (docs/time.md)."""
