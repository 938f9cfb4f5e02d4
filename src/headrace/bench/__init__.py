"""Every claim about speed, as a benchmark that you can run."""
