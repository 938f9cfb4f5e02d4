"""How a site serves the remote clients of its queue."""
