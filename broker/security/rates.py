"""`Rate`, `SimpleRate` and `TokenBucket`: Kafka's measures of use, for quotas. Pure; times are milliseconds.

Source: Kafka's ``Rate``, ``SimpleRate``, ``SampledStat``, ``TokenBucket``, ``QuotaUtils``.
"""

from __future__ import annotations

import math

THROTTLE_MS_MAX = 2**31 - 1


def rounded_ms(milliseconds: float) -> int:
    """Round as Java's ``Math.round``, to at most the largest value of the response's field."""
    return THROTTLE_MS_MAX if milliseconds >= THROTTLE_MS_MAX else math.floor(milliseconds + 0.5)


class _Sample:
    __slots__ = ("last_ms", "start_ms", "value")

    def __init__(self, now_ms: int) -> None:
        self.reset(now_ms)

    def reset(self, now_ms: int) -> None:
        self.value = 0.0
        self.start_ms = self.last_ms = now_ms


class Rate:
    """A rate per second over ``samples`` windows of ``window_ms``, the one that runs included."""

    __slots__ = ("_current", "_samples", "_samples_max", "_window_ms")

    def __init__(self, samples: int, window_ms: int) -> None:
        self._samples_max = samples
        self._window_ms = window_ms
        self._samples: list[_Sample] = []
        self._current = 0

    def record(self, value: float, now_ms: int) -> None:
        """Count ``value``."""
        samples = self._samples
        if not samples:
            samples.append(_Sample(now_ms))
        sample = samples[self._current]
        if now_ms - sample.start_ms >= self._window_ms:
            # One more than asked for: the oldest overlaps the time that is looked at.
            self._current = (self._current + 1) % (self._samples_max + 1)
            if self._current == len(samples):
                samples.append(_Sample(now_ms))
            sample = samples[self._current]
            sample.reset(now_ms)
        sample.value += value
        sample.last_ms = now_ms

    def measure(self, now_ms: int) -> float:
        """Return the rate per second."""
        span_ms = self.span_ms(now_ms)
        return sum(sample.value for sample in self._samples) / (span_ms / 1000)

    def span_ms(self, now_ms: int) -> int:
        """Return the milliseconds over which the rate is measured: at least all complete windows."""
        age_ms = self._samples_max * self._window_ms
        for sample in self._samples:
            if now_ms - sample.last_ms >= age_ms:
                sample.reset(now_ms)
        elapsed_ms = now_ms - min((sample.start_ms for sample in self._samples), default=now_ms)
        complete = elapsed_ms // self._window_ms
        missing = self._samples_max - 1 - complete
        if missing > 0:
            elapsed_ms += missing * self._window_ms
        return max(elapsed_ms, 1)

    def throttle_ms(self, limit: float, now_ms: int) -> int:
        """Return the milliseconds without use after which the rate is at the limit; 0 if it is not above it."""
        rate = self.measure(now_ms)
        if rate <= limit:
            return 0
        if limit <= 0:
            return THROTTLE_MS_MAX
        return rounded_ms((rate - limit) / limit * self.span_ms(now_ms))


class SimpleRate(Rate):
    """As `Rate`, from the first record on: nothing is taken for granted of the windows before it."""

    __slots__ = ()

    def span_ms(self, now_ms: int) -> int:
        """Return the milliseconds over which the rate is measured: at least one window."""
        super().span_ms(now_ms)  # forgets what is too old
        first_ms = min((sample.start_ms for sample in self._samples), default=now_ms)
        return max(now_ms - first_ms, self._window_ms)


class TokenBucket:
    """Fills with ``limit`` tokens a second, up to what comes in ``samples`` windows. It may fall below 0."""

    __slots__ = ("_burst_s", "_filled_ms", "_tokens")

    def __init__(self, samples: int, window_ms: int) -> None:
        self._burst_s = samples * window_ms / 1000
        self._tokens = 0.0
        self._filled_ms: int | None = None
        """None: it is full (Kafka's is empty since 1970)."""

    def record(self, value: float, limit: float, now_ms: int) -> None:
        """Take ``value`` tokens."""
        self._tokens = min(self._burst_s * limit, self.measure(limit, now_ms) - value)

    def measure(self, limit: float, now_ms: int) -> float:
        """Fill the bucket and return how many tokens there are."""
        burst = self._burst_s * limit
        if self._filled_ms is None:
            self._tokens = burst
        else:
            self._tokens = min(burst, self._tokens + limit * ((now_ms - self._filled_ms) / 1000))
        self._filled_ms = now_ms
        return self._tokens

    def throttle_ms(self, limit: float, now_ms: int) -> int:
        """Return the milliseconds until there are 0 tokens or more."""
        tokens = self.measure(limit, now_ms)
        return rounded_ms(-tokens / limit * 1000) if tokens < 0 else 0
