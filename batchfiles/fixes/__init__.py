"""Mends faults that rules have found, by edits that are kept only if the fault is gone and nothing else is new."""
