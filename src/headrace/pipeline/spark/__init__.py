"""Spark itself: a session, Java, the home folder that makes both start quickly, environments for executors.

Nothing here knows products, rules or queues: every other folder of the pipeline may import this one.
"""
