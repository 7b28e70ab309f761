"""Pages of the documentation that belong to no other folder."""
