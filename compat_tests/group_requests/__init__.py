"""Members and administrators of groups that send requests by hand: both targets respond alike, field by field."""
