"""Position-sensitive crops by NumPy, for the tests of their means."""

import numpy as np


def crop_by_loops(maps, boxes, crop_size, num_bins):
    """NumPy: each bin sampled as a box, sample by sample, out of its channels."""
    batch, height, width, channels = maps.shape
    depth = channels // (num_bins[0] * num_bins[1])
    # A frame of zeros, which samples outside of the maps fade to.
    framed = np.zeros((batch, height + 2, width + 2, channels))
    framed[:, 1:-1, 1:-1] = maps
    crops = np.zeros((batch, boxes.shape[1], *crop_size, depth))

    def position(low, high, number, size, length, index):
        """Pixel coordinate of a sample of the framed maps along one axis, and its bin."""
        group, sample = divmod(index, size // number)
        share = sample / (size // number - 1) if size > number else 0.5
        coordinate = (low + (group + share) * (high - low) / number) * (length - 1) + 1
        return np.clip(coordinate, 0, length + 1), group

    for image, box, i, j in np.ndindex(*crops.shape[:4]):
        low_y, low_x, high_y, high_x = boxes[image, box].astype(np.float64)
        y, row = position(low_y, high_y, num_bins[0], crop_size[0], height, i)
        x, column = position(low_x, high_x, num_bins[1], crop_size[1], width, j)
        group = (row * num_bins[1] + column) * depth
        own = framed[image, ..., group : group + depth]
        for pixel_y, pixel_x in np.ndindex(*own.shape[:2]):
            weight = max(0, 1 - abs(y - pixel_y)) * max(0, 1 - abs(x - pixel_x))
            crops[image, box, i, j] += weight * own[pixel_y, pixel_x]
    return crops
