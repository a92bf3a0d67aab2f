"""Runs compared: N instances ≡ one, interrupted ≡ uninterrupted, and what the evidence points to."""
