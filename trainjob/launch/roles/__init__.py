"""Runs a job of several roles: its servers, and its own ranks once these are ready."""
