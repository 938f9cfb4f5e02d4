"""Very many subscriptions at once: which of them want this product?"""
