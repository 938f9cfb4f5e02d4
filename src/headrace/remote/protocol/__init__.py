"""The calls of remote users and their answers, as plain data."""
