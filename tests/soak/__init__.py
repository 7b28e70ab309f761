"""Long random runs, which `make soak` lets take an hour and `make test` a minute."""
