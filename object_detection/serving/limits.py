"""What a server accepts: its options, the errors of requests, and the memory that requests hold.

Imports no TensorFlow, and nothing that the extra `serve` installs, for `tfod serve --help`.
"""

import contextlib
import dataclasses
import math
import re
from collections.abc import Iterator

from object_detection.errors import UserError, expected

# What TensorFlow Serving's paths can name.
_NAME = re.compile(r'[A-Za-z0-9_][A-Za-z0-9_.-]*')
# Option -> the smallest and largest value that it accepts.
_RANGES = {
    'model_version': (0, 2**31 - 1),
    'max_batch_size': (1, 1024),
    'max_wait_ms': (0, 10_000),
    'max_queue': (1, 100_000),
    'max_connections': (1, 100_000),
    'max_images': (1, 1024),
    'max_body_mb': (0.001, 1024),
    'max_megapixels': (0.0001, 178),
    'max_memory_mb': (1, 1_000_000),
    'timeout_s': (0.01, 3600),
    'drain_s': (0, 600),
}


@dataclasses.dataclass(frozen=True)
class ServeOptions:
    """How a model is named, batched and protected; the fields are the flags of `tfod serve`.

    Attributes:
      model_name, model_version: as which TensorFlow Serving's paths know the model.
      max_batch_size: most images that the model computes at a time.
      max_wait_ms: longest time that an image waits for others to be computed with.
      max_queue: most images, and most requests, that are held; others are refused.
      max_connections: most connections; the longest idle one is closed for a new one.
      max_images: most images of a request.
      max_body_mb: most megabytes of a request's body.
      max_megapixels: most million pixels of an image, read from its header before it is decoded.
      max_memory_mb: most megabytes of bodies, decoded images and answers that are held.
      timeout_s: longest time for receiving a header, then a body, and then for its answer.
      drain_s: seconds from the signal to stop until the port is closed.

    Raises:
      UserError: for a value that is outside its range, or a name that no path can hold.
    """

    model_name: str = 'model'
    model_version: int = 1
    max_batch_size: int = 8
    max_wait_ms: float = 5.0
    max_queue: int = 128
    max_connections: int = 512
    max_images: int = 32
    max_body_mb: float = 32.0
    max_megapixels: float = 25.0
    max_memory_mb: float = 1024.0
    timeout_s: float = 30.0
    drain_s: float = 0.0

    def __post_init__(self):
        for name, (low, high) in _RANGES.items():
            value = getattr(self, name)
            if not (math.isfinite(value) and low <= value <= high):
                raise UserError(f'--{name}: expected {low} to {high}. Received: {value}.')
        if not _NAME.fullmatch(self.model_name):
            raise expected('--model_name', 'letters, digits, "_", "-", "."', repr(self.model_name))

    @property
    def max_body(self) -> int:
        """Most bytes of a body."""
        return int(self.max_body_mb * 1e6)

    @property
    def max_pixels(self) -> int:
        """Most pixels of an image."""
        return int(self.max_megapixels * 1e6)


class RequestError(UserError):
    """A request that is not answered with detections.

    Attributes:
      status: the status of HTTP.
    """

    def __init__(self, status: int, message: str):
        super().__init__(message)
        self.status = status


class Memory:
    """Counts the bytes that requests hold; used by one thread, that of the event loop.

    Args:
      limit: most bytes.

    Attributes:
      held: bytes that are held.
      peak: most bytes that were held since it was last set.
    """

    def __init__(self, limit: float):
        self._limit = limit
        self.held = self.peak = 0

    @contextlib.contextmanager
    def hold(self, count: int) -> Iterator[None]:
        """Holds bytes for the time of the block.

        Raises:
          RequestError: with status 503, if there are not so many left.
        """
        self.take(count)
        try:
            yield
        finally:
            self.held -= count

    def take(self, count: int) -> None:
        """Counts bytes as held, until `give_back`; raises as `hold`."""
        if count > self._limit:
            raise RequestError(
                413, f'needs {count} bytes of memory; --max_memory_mb allows {self._limit:.0f}.'
            )
        if self.held + count > self._limit:
            raise RequestError(503, 'the server holds too many large requests; try again later.')
        self.held += count
        self.peak = max(self.peak, self.held)

    def give_back(self, count: int) -> None:
        self.held -= count
