"""Commands that compute and print, and start nothing."""
