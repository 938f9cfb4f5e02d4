"""Where products rest: a bounded, shared, crash-safe log in one directory."""
