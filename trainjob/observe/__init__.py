"""Reads runs: their index, state, output, usage and figures. Changes none."""
