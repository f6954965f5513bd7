"""The images that detectors of other systems are recorded with, as a function of their shape.

Recordings may hold only some of the pixels; these images are the whole ones.
"""

import numpy as np

# Rows of a period of the cosine, over 2 pi, of red, green and blue.
_ROWS = (7, 11, 13)
_RECTANGLES = 5
_NOISE = 18.0
# The least side of a rectangle, and the least distance of its corner from the far edges.
_SIDE, _MARGIN = 15, 20


def recorded_images(count: int, height: int, width: int) -> np.ndarray:
    """Returns waves with noise under rectangles of one colour: uint8 [count, height, width, 3]."""
    generator = np.random.default_rng(0)
    rows, columns = np.mgrid[:height, :width]
    images = []
    for number in range(count):
        across = np.sin(columns / (9 + 3 * number))
        waves = np.stack([across * np.cos(rows / period) for period in _ROWS], axis=-1)
        image = 110 + 60 * waves + generator.normal(0, _NOISE, (height, width, 3))
        for _ in range(_RECTANGLES):
            top = generator.integers(0, height - _MARGIN)
            left = generator.integers(0, width - _MARGIN)
            tall = generator.integers(_SIDE, height // 2)
            wide = generator.integers(_SIDE, width // 2)
            colour = generator.integers(0, 255, 3)
            image[top : top + tall, left : left + wide] = colour
        images.append(np.clip(image, 0, 255).astype(np.uint8))
    return np.stack(images)
