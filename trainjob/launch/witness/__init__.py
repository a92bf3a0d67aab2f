"""Records what ranks use, where they are, and why one ended."""
