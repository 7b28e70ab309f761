"""What several tests share, a file for each topic: docs/contributing/architecture.md lists them."""
