"""Slices: processing nodes that share a stream, and the balancer that moves slices between them."""
