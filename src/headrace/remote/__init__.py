"""remote: the queue of a site, used from elsewhere as if it were here. `docs/remote.md` says what is the same."""

from headrace.remote.client.opening import connect

__all__ = ["connect"]
