"""What sites send each other, as plain data: pages, beats, queries and replies, descriptions; and their validation.

docs/format.md has every message and field. Nothing here sends or receives.
"""
