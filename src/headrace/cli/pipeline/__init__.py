"""`headrace pipeline`: rules on Spark."""
