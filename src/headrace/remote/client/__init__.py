"""Classes that implement the Protocols of queue/interface.py by calls to a site."""
