"""Products that the pipeline wrote to tables, and how they are put again."""
