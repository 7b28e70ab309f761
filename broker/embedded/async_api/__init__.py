"""The public classes for asyncio and Trio. Those for synchronous code, in `sync_api`, are made from these."""
