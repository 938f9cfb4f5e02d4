"""How a site serves the remote users of its queue."""
