"""Embeddings of detected objects: what Context R-CNN remembers of the images of a camera.

(Beery et al., "Context R-CNN: Long Term Temporal Context for Per-Camera Object Detection",
https://arxiv.org/abs/1912.03538)
"""

import datetime

import numpy as np

_DATE_FORMAT = '%Y-%m-%d %H:%M:%S'


def time_of(date: str) -> datetime.datetime | None:
    """Returns the time of image/date_captured, as UTC; None if it does not state one.

    Besides YYYY-MM-DD HH:MM:SS, other forms of ISO 8601 with a date and a time are read. Fractions
    of a second are cut off; a time without a time zone is taken as UTC.
    """
    try:
        time = datetime.datetime.strptime(date, _DATE_FORMAT)
    except ValueError:
        time = _iso_time(date)
    if time is None:
        return None
    try:
        utc = time.replace(tzinfo=time.tzinfo or datetime.UTC).astimezone(datetime.UTC)
    except OverflowError:
        return None
    return utc.replace(microsecond=0)


def _iso_time(date: str) -> datetime.datetime | None:
    try:
        # A date without a time would say that it was midnight.
        datetime.date.fromisoformat(date)
        return None
    except ValueError:
        pass
    try:
        return datetime.datetime.fromisoformat(date)
    except ValueError:
        return None


def normal_date(date: str) -> str:
    """Returns a time as YYYY-MM-DD HH:MM:SS, whose order is that of time; other texts as is."""
    time = time_of(date)
    return date if time is None else time.replace(tzinfo=None).isoformat(' ')


def embed(features: np.ndarray, boxes: np.ndarray, time: datetime.datetime | None) -> np.ndarray:
    """Returns an embedding of each object: its features, its box and the time of its image.

    Args:
      features: float [n, C], the means of the box features over the cells of each box.
      boxes: float [n, 4], [ymin, xmin, ymax, xmax], normalized.
      time: when the image was taken; None leaves the time out.

    Returns:
      float64 [n, C + 9]; [n, C + 4] without a time.
    """
    date = np.zeros(0) if time is None else of_time(time)
    return np.concatenate([features, of_boxes(boxes), np.tile(date, (len(boxes), 1))], axis=1)


def of_time(time: datetime.datetime) -> np.ndarray:
    """Returns year, month, day, hour and minute, each from about 0 to 1, as float64 [5]."""
    return np.array(
        [
            (time.year - 1990) / 40,
            (time.month - 1) / 12,
            (time.day - 1) / 31,
            time.hour / 24,
            time.minute / 60,
        ]
    )


def of_boxes(boxes: np.ndarray) -> np.ndarray:
    """Returns (x, y, width, height), x and y of the centre, of boxes [n, 4], as float64 [n, 4]."""
    ymin, xmin, ymax, xmax = np.moveaxis(np.asarray(boxes, np.float64), -1, 0)
    return np.stack([(xmin + xmax) / 2, (ymin + ymax) / 2, xmax - xmin, ymax - ymin], axis=-1)
