"""What the writers of predictions are given, and what those of several formats share."""

import dataclasses
import pathlib
import re
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
from lxml import etree

from object_detection.prediction.prediction import Prediction
from object_detection.prediction.sources import Clip

_NOT_IN_XML = re.compile('[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]')


@dataclasses.dataclass(frozen=True)
class Output:
    """Where and how predictions are written.

    Attributes:
      folder: the folder of all files; it exists.
      names: class id -> name.
      score_threshold: the lowest score in all files but COCO results, which have every object.
      max_boxes: maximum number of objects that are drawn in a picture.
      frames: whether pictures are written of the frames of videos, too.
      keypoint_names: position of a keypoint -> name.
      model: what found the objects, for tools that show it.
      tracks: whether objects are tracked.
    """

    folder: pathlib.Path
    names: Mapping[int, str]
    score_threshold: float
    max_boxes: int
    frames: bool
    keypoint_names: Mapping[int, str] = dataclasses.field(default_factory=dict)
    model: str = ''
    tracks: bool = False


@dataclasses.dataclass(frozen=True)
class Item:
    """A prediction to be written.

    Attributes:
      prediction: what was found, of any score.
      image_id: its number in COCO results.
      name: the name of its files, without a suffix; no other item has it.
      clip: the video; None for an image file.
      clip_name: the name of the files of the video.
      sequence: the name of the files of the tracks of a video, or of a folder of frames.
      number: number of the frame in it, from 0.
    """

    prediction: Prediction
    image_id: int
    name: str
    clip: Clip | None = None
    clip_name: str = ''
    sequence: str = ''
    number: int = 0


# Writes an item and returns the file of it alone, relative to the folder, if it has one.
Write = Callable[[Item, Prediction], str | None]
Writer = Callable[[Output], AbstractContextManager[Write]]


def inside(prediction: Prediction) -> np.ndarray:
    """Returns the boxes, float64 [n, 4], clipped to the image."""
    height, width = prediction.image.shape[:2]
    return np.clip(prediction.boxes.astype(np.float64), 0, [height, width, height, width])


def add(parent: Any, values: Mapping[str, Any]) -> None:
    for tag, value in values.items():
        etree.SubElement(parent, tag).text = in_xml(str(value))


def in_xml(text: str) -> str:
    """Returns a text without the characters that XML cannot hold."""
    return _NOT_IN_XML.sub('?', text)
