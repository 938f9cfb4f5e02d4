"""`headrace queue`: what an operator does with a queue as a whole."""
