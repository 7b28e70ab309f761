"""Programs with a known verdict, and `oncelog prove` as their judge."""
