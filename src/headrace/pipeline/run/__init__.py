"""A pipeline at work: one Spark query per rule, its checkpoint, its micro-batches, its restarts, its status."""
