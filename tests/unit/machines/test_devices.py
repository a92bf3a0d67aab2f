"""Tables of gc-monitor and nvidia-smi, read by their headings, and rocm-smi's JSON."""

from __future__ import annotations
