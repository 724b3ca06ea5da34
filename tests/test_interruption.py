import os
import signal

import pytest

from latentmill.stages.training.interruption import stop_on_signals


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_asks_and_the_second_stops(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with pytest.raises(KeyboardInterrupt), stop_on_signals() as stop:
        assert not stop.requested
        os.kill(os.getpid(), number)
        assert (stop.requested, stop.forced) == (True, False)
        os.kill(os.getpid(), number)
    assert stop.forced
    assert signal.getsignal(number) == before
