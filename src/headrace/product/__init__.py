"""What travels: products, batches of them, and the names of feeds."""

from headrace.product.batch import Batch, Lost
from headrace.product.feed import FeedPattern, check_feed
from headrace.product.product import Product
from headrace.product.properties import PropertyValue

__all__ = ["Batch", "FeedPattern", "Lost", "Product", "PropertyValue", "check_feed"]
