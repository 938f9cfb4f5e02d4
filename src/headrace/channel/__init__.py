"""Channels: feed subtrees with a quality of service that their stations inherit; suppliers, push and pull."""
