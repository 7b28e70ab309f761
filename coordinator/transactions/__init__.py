"""Transactions: pure state machines over the records of ``__transaction_state``."""
