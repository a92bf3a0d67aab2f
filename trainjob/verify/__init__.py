"""Compares runs: N instances ≡ one, interrupted ≡ uninterrupted. Diagnoses the causes of differences."""
