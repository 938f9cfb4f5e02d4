"""Every claim about speed, as something that can be run."""
