"""Tasks compared update by update, from the traces that the runtime writes."""
