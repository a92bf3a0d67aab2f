"""Engine ipu: poptorch, alone or under popdist."""
