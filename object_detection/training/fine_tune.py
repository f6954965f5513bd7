"""The old place of `object_detection.weights.restore`, for programs that import it."""

from object_detection.weights.restore import restore

__all__ = ['restore']
