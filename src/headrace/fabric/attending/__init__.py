"""attending: how a site answers the remote users of its queue; the other end is `headrace.fabric.remote`."""
