"""`headrace station`: what an operator does with the stations of a queue."""
