"""Tasks: model, data and loss together. `base` defines what a task is; a new built-in one is a module and a row."""
