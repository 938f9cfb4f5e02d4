"""Spark itself: session, Java, start-up archive, packaged environments."""
