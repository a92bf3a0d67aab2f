"""Container images: what goes in, who builds them, and how one is run by hand."""
