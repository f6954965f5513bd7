"""Images for the tests of analyses."""

import numpy as np

from object_detection.metrics.analysis.images import ImageBoxes

# Boxes of 20 pixels: at an IoU of 1, 2/3 (shifted by 4), 1/3 (by 10) and 0 with `AT`.
AT, NEAR, HALF, AWAY = (10, 10, 30, 30), (10, 14, 30, 34), (10, 20, 30, 40), (70, 70, 90, 90)


def image(objects=(), found=(), crowds=(), name='image') -> ImageBoxes:
    """Makes an image of 128x128: objects and crowds are (class, box), found (class, box, score)."""
    all_ = [*objects, *crowds]
    return ImageBoxes(
        name,
        128,
        128,
        np.array([box for _, box in all_], np.float64).reshape(-1, 4),
        np.array([class_id for class_id, _ in all_], np.int64),
        np.arange(len(all_)) >= len(objects),
        np.array([box for _, box, _ in found], np.float64).reshape(-1, 4),
        np.array([class_id for class_id, _, _ in found], np.int64),
        np.array([score for _, _, score in found], np.float64),
    )


def random_images(seed: int, count: int = 30, num_classes: int = 3) -> list[ImageBoxes]:
    """Makes images with all kinds of errors; RandomState never changes its numbers."""
    random = np.random.RandomState(seed)
    images = []
    for index in range(count):
        num = random.randint(0, 6)
        corners = random.uniform(0, 80, (num, 2))
        boxes = np.hstack([corners, corners + random.uniform(8, 40, (num, 2))])
        classes = random.randint(1, num_classes + 1, num)
        source = random.randint(0, num, random.randint(0, 12)) if num else np.zeros(0, int)
        found = boxes[source] + random.normal(0, 4, (len(source), 4))
        found[:, 2:] = np.maximum(found[:, 2:], found[:, :2] + 1)
        extra = random.randint(0, 3)
        corners = random.uniform(0, 80, (extra, 2))
        found = np.vstack([found, np.hstack([corners, corners + 20])])
        other = random.randint(1, num_classes + 1, len(found))
        is_other = np.append(random.random_sample(len(source)) < 0.25, np.ones(extra, bool))
        right = np.append(classes[source], np.zeros(extra, int))
        scores = np.sort(random.random_sample(len(found)))[::-1]
        found_classes = np.where(is_other, other, right)
        crowds = np.zeros(num, bool)
        images.append(
            ImageBoxes(str(index), 128, 128, boxes, classes, crowds, found, found_classes, scores)
        )
    return images
