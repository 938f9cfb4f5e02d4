"""Helpers for several folders of tests: sites in this process, served queues, secured links, the command line, daemons, waiting."""
