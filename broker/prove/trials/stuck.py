"""`why_stuck`: why a program does not come to its end, in a sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.net.unexpected_bytes import SENTENCES
from oncelog.broker.prove.trials.program import last_line
from oncelog.broker.prove.trials.watch import LEFT_OUT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from oncelog.broker.control.controlled import Controlled
    from oncelog.broker.prove.plan import ProofPlan
    from oncelog.broker.prove.trials.instances import Instances
    from oncelog.broker.prove.trials.watch import Watch


async def why_stuck(
    plan: ProofPlan,
    watch: Watch,
    instances: Instances,
    controlled: Controlled,
    variables: Mapping[str, str],
    *,
    is_handling: bool,
) -> str:
    """Return the reason, and the last lines that the program wrote. ``controlled``: the broker or proxy that it was to
    use, with the log-in in ``variables``. ``is_handling``: the trial itself waits for the end of a disturbance.
    """
    reason = _no_login(watch, controlled, variables)
    if reason is None and not watch.sightings:
        reason = _no_request(plan, variables) + await _strange_bytes(controlled)
    if reason is None:
        reason = (
            "what the disturbance begins does not end" if is_handling else _unfinished(plan, watch, instances)
        )
    return reason + _last_lines(instances)


def _no_login(watch: Watch, controlled: Controlled, variables: Mapping[str, str]) -> str | None:
    failed = controlled.journal.failed_logins
    if failed and variables and all(one.api in LEFT_OUT for one in watch.sightings):
        return (
            f"the program cannot log in ({failed[-1].step}: {failed[-1].reason}); it has to use the variables "
            + ", ".join(variables)
        )
    return None


def _no_request(plan: ProofPlan, variables: Mapping[str, str]) -> str:
    login = f", with the log-in in {', '.join(variables)}" if variables else ""
    return (
        f"the program sent no request in {plan.timeout_s:g} s: it has to connect to the address in "
        f"{plan.address_variable}, or in its arguments as {{bootstrap}}{login}"
    )


async def _strange_bytes(controlled: Controlled) -> str:
    """Return what the broker's log says of connections that speak another protocol."""
    log = "\n".join(await controlled.call("log_lines", {}))
    return "".join(f"; its connections are closed: {one}" for one in SENTENCES if one in log)


def _unfinished(plan: ProofPlan, watch: Watch, instances: Instances) -> str:
    """Return what a program has not done yet that sends requests."""
    if owned := instances.owned():
        return f"the transaction of {', '.join(owned)} stays open"
    if not plan.until_exit and not watch.uses_share_groups and not watch.is_at_end(plan.inputs):
        for one in instances:
            if one.exit_code is None and not watch.has_seen(one.listener, one.run):
                return f"start {one.run} of instance {one.instance} sent no request"
        last = watch.sightings[-1]
        return (
            f"the program does not fetch to the end of its input; its last request was {last.api}, "
            f"{watch.now_s - last.at_s:.1f} s ago"
        )
    if plan.until_exit:
        hint = "; a service needs no --until-exit" if watch.is_at_end(plan.inputs) else ""
        return f"the program has not ended in {plan.timeout_s:g} s{hint}"
    return f"the program was still busy after {plan.timeout_s:g} s"


def _last_lines(instances: Instances) -> str:
    """Return what the processes that run wrote last."""
    lines = {one.instance: last_line(one.output) for one in instances if one.exit_code is None}
    return "".join(f"; instance {instance} wrote last: {line}" for instance, line in lines.items() if line)
