"""`oncelog prove`: runs a user's program once for each step at which it, the broker or the network can fail, and says
what that loses, doubles or reorders.
"""
