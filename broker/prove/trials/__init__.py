"""One run of the program: its broker or cluster, its processes, and what is seen of both."""
