"""SQL conditions over the header fields and properties of products: parsed once, evaluated one by one or by column."""
