"""Any script compared update by update, from what the hook in its Python records."""
