"""Tasks: model, data and loss together. `base` says what a task is; a new built-in one is a module and a row."""
