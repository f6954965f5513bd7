"""A model whose outputs are known, with a small image file for it."""

import io
import threading

import numpy as np
from PIL import Image

from object_detection.serving.model import UINT8, Picture, TensorInfo


class BrightnessModel:
    """Finds one object in every image: its score is the brightness of the first pixel / 255.

    The box is the left half of the image, of class 2, with a mask whose upper half is set.

    Attributes:
      batches: the number of rows of each batch.
      gate: batches wait for this event; it is set at the start.
      threads: names of the threads that ran batches.
    """

    def __init__(self):
        self.source, self.precision, self.class_names = 'a model', 'float32', {2: 'cat'}
        self.advised_threshold = None
        self.input = TensorInfo('input_tensor', UINT8, (None, None, None, 3))
        self.outputs = (
            TensorInfo('detection_boxes', 'float32', (None, 1, 4)),
            TensorInfo('num_detections', 'float32', (None,)),
        )
        self.batches, self.threads = [], set()
        self.gate = threading.Event()
        self.gate.set()

    def as_row(self, picture: Picture) -> np.ndarray:
        return picture.image

    def check_row(self, row: np.ndarray, max_pixels: int) -> np.ndarray:
        return row

    def run(self, rows):
        images = np.stack(rows)
        self.threads.add(threading.current_thread().name)
        assert self.gate.wait(20)
        self.batches.append(len(images))
        if (images[:, 0, 0, 0] == 13).any():
            raise RuntimeError('13 brings bad luck')
        return [self.outputs_of(image) for image in images]

    @staticmethod
    def outputs_of(image):
        return {
            'detection_boxes': np.array([[0, 0, 1, 0.5]], np.float32),
            'detection_scores': np.array([image[0, 0, 0] / 255], np.float32),
            'detection_classes': np.array([2], np.float32),
            'detection_masks': np.array([[[1.0] * 4] * 2 + [[0.0] * 4] * 2], np.float32),
            'num_detections': np.float32(1),
        }


def image_file(
    value: int = 51, size: tuple[int, int] = (8, 12), kind: str = 'PNG', dtype: type = np.uint8
) -> bytes:
    """A grey image of (height, width), of 8 bits in three channels or of 16 in one."""
    file = io.BytesIO()
    shape = size if dtype == np.uint16 else (*size, 3)
    Image.fromarray(np.full(shape, value, dtype)).save(file, kind)
    return file.getvalue()
