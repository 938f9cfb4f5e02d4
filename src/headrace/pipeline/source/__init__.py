"""The Spark data source `headrace`: products of a queue or a site as a DataFrame, and rows of one as products."""
