"""What a server measures of itself, in the format of Prometheus."""

from collections.abc import Callable

import prometheus_client as prometheus

CONTENT_TYPE = prometheus.CONTENT_TYPE_LATEST
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128)


class Measurements:
    """Counters and histograms of requests and batches, and the memory and time of the process.

    Args:
      count_images: returns how many images wait or are computed.
      count_bytes: returns how many bytes requests hold.
    """

    def __init__(self, count_images: Callable[[], int], count_bytes: Callable[[], int]):
        self._registry = prometheus.CollectorRegistry()
        prometheus.ProcessCollector(registry=self._registry)
        own = {'registry': self._registry}
        self._requests = prometheus.Counter(
            'tfod_requests', 'Requests; status 499: the client left.', ['path', 'status'], **own
        )
        self._seconds = prometheus.Histogram(
            'tfod_request_seconds', 'Time of requests.', ['path'], buckets=_SECONDS, **own
        )
        self._batch_rows = prometheus.Histogram(
            'tfod_batch_images', 'Images of batches.', buckets=_ROWS, **own
        )
        self._batch_seconds = prometheus.Histogram(
            'tfod_batch_seconds', 'Time of batches.', buckets=_SECONDS, **own
        )
        queue = prometheus.Gauge('tfod_queue_images', 'Images held.', **own)
        queue.set_function(count_images)
        memory = prometheus.Gauge('tfod_held_bytes', 'Bytes of bodies and images held.', **own)
        memory.set_function(count_bytes)

    def observe(self, path: str, status: int, seconds: float) -> None:
        """Counts a request by the pattern of its path."""
        self._requests.labels(path, str(status)).inc()
        self._seconds.labels(path).observe(seconds)

    def observe_batch(self, rows: int, seconds: float) -> None:
        """Counts a batch that the model has computed."""
        self._batch_rows.observe(rows)
        self._batch_seconds.observe(seconds)

    def text(self) -> bytes:
        """Returns all in the text format of Prometheus."""
        return prometheus.generate_latest(self._registry)
