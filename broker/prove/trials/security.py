"""`Security`: the log-in and the TLS of a proof's brokers, and the variables by which the program gets to know them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from oncelog.broker.control.errors import UnsupportedError
from oncelog.broker.seams.clock import real_time
from oncelog.broker.seams.extras import install_command
from oncelog.broker.seams.processes import write_file

if TYPE_CHECKING:
    from oncelog.broker.prove.plan import ProofPlan

PROTOCOL, MECHANISM, USER, PASSWORD, AUTHORITY = (
    "KAFKA_SECURITY_PROTOCOL",
    "KAFKA_SASL_MECHANISM",
    "KAFKA_SASL_USERNAME",
    "KAFKA_SASL_PASSWORD",
    "KAFKA_SSL_CA_LOCATION",
)
AUTHORITY_FILE: Final = "authority.pem"


@dataclass(frozen=True, repr=False)
class Security:
    """See the module. No repr: it would show passwords and a private key."""

    protocol: str
    users: dict[str, str]
    tls: dict[str, str] | None
    """The keys ``ssl.`` of the listeners; None without TLS."""
    variables: dict[str, str]
    """The variables of the program's environment that say how it logs in."""


def make_security(plan: ProofPlan, folder: str) -> Security:
    """Return the security that a plan asks for; the certificate of the authority is written into ``folder``. Raises
    UnsupportedError without what TLS needs.
    """
    protocol = ("SASL_" if plan.user is not None else "") + ("SSL" if plan.tls else "PLAINTEXT")
    variables = {PROTOCOL: protocol} if protocol != "PLAINTEXT" else {}
    users = {}
    if plan.user is not None:
        users[plan.user] = plan.password or ""
        variables |= {MECHANISM: plan.mechanism, USER: plan.user, PASSWORD: plan.password or ""}
    tls = None
    if plan.tls:
        try:
            from oncelog.broker.security.tls.authority import DevelopmentAuthority, broker_config
        except ModuleNotFoundError as error:
            raise UnsupportedError(f"TLS needs {error.name}: {install_command('security')}") from None
        authority = DevelopmentAuthority(real_time.now_ms())
        tls = broker_config(authority.server(), authority.pem)
        variables[AUTHORITY] = f"{folder}/{AUTHORITY_FILE}"
        write_file(variables[AUTHORITY], authority.pem)
    return Security(protocol, users, tls, variables)
