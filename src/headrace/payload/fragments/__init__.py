"""Fragments: files and products that are larger than a product may be, cut, sent as products, verified and joined."""
