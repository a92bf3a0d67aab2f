"""Changes runs: starts, resumes, cancels, exports and removes them."""
