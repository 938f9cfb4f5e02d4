"""The calls of remote clients and their replies, as plain data."""
