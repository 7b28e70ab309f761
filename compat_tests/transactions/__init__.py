"""Transactions with stock clients, on both targets."""
