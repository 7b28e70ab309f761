"""What several tests share, a file for each topic: docs/architecture.md lists them."""
