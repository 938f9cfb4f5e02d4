"""In what shape: compression and fragments."""
