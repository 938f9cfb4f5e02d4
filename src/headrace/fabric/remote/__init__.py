"""remote: the queue of a site, used from elsewhere as if it were here. `docs/remote.md` says what is the same."""

from headrace.fabric.remote.opening import connect

__all__ = ["connect"]
