"""`NotingAuthorizer` allows all, and notes what it is asked about."""

from __future__ import annotations


class NotingAuthorizer:
    """See the module; ``asked`` has the names of resources, in order."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def authorize(self, principal: str, host: str, operation: int, resource: tuple[int, str]) -> bool:
        self.asked.append(resource[1])
        return True

    def authorize_by_resource_type(
        self, principal: str, host: str, operation: int, resource_type: int
    ) -> bool:
        return True
