"""Shares: who works on which slice of a stream, as a table in the queue's directory."""
