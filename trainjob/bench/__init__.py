"""Measurements for users: loader, collective, scaling, growth, step. Every figure comes from a run."""
