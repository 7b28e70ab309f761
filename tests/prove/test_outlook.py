"""How long a proof says that it takes."""

from oncelog.broker.prove.outlook import JOBS_PER_CORE, Outlook, jobs_for
from oncelog.broker.seams.processes import cores


def test_as_many_trials_run_as_keep_the_cores_busy() -> None:
    assert jobs_for(1.0, 1.0) == cores()
    assert jobs_for(1.0, 0.5) == 2 * cores()
    assert jobs_for(1.0, 0.25) == 3 * cores()
    assert jobs_for(1.0, 0.1) == 6 * cores()
    assert jobs_for(1.0, 0.0) == JOBS_PER_CORE * cores()


def test_trials_that_wait_are_measured_by_their_time_and_those_that_compute_by_the_cores() -> None:
    waiting = Outlook(1.0, 0.0, jobs=1).foretell(100)
    assert Outlook(1.0, 0.0, jobs=4).foretell(100) == waiting / 4
    computing = Outlook(1.0, 1.0, jobs=4 * cores()).foretell(100)
    assert computing == Outlook(1.0, 1.0, jobs=8 * cores()).foretell(100)


def test_it_is_given_anew_when_trials_take_much_longer_and_not_again_while_that_holds() -> None:
    outlook = Outlook(1.0, 0.0, jobs=1)
    foretold = outlook.foretell(100)
    assert outlook.renewed(50, 100, foretold / 2) is None
    assert outlook.renewed(50, 100, foretold) == foretold
    assert outlook.renewed(60, 100, 1.2 * foretold) is None
    assert outlook.renewed(100, 100, 9 * foretold) is None
