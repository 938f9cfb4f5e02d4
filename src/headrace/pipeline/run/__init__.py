"""A pipeline at work: one Spark query per rule, checkpoints, micro-batches, restarts."""
