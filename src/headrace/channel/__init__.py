"""On what terms: feed subtrees with a quality of service, their suppliers and push consumers."""
