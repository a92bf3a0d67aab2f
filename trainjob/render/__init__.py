"""Plan → Rendered: one strict Jinja environment, one place that quotes."""
