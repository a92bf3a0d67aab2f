"""Compares runs: N instances ≡ one, interrupted ≡ uninterrupted. Diagnoses what the evidence points to."""
