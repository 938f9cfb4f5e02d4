"""remote: the queue of a site, used from elsewhere as if it were here. `docs/remote.md` says what is the same."""

from headrace.remote.client.connect import connect

__all__ = ["connect"]
