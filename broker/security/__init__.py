"""Who may connect, who they are, and what they may do."""
