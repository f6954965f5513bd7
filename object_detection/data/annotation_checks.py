"""The checks of images, boxes and whole sets that the readers of all annotation formats share.

A box that extends beyond the image is clipped; it is left out if less than a pixel of its height or
width remains.
"""

import math
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from typing import NamedTuple

from object_detection.core import tf_example_keys as keys
from object_detection.data import annotated_image, image_files
from object_detection.data.image_files import ImageFile
from object_detection.errors import UnusableError, format_list

# Minimum height and width of a clipped box, in pixels.
MIN_REMAINDER = 1.0
# What marks objects that do not count in a training or a metric as others do.
IGNORED = {
    keys.IS_CROWD: 'crowds, which skip_crowd leaves out and metrics of COCO ignore',
    keys.GROUP_OF: 'groups, which metrics of Open Images do not count as objects',
    keys.DIFFICULT: 'difficult, which metrics of PASCAL VOC ignore',
    keys.WEIGHT: 'of weight 0, which do not train',
}
# Shares of a set's boxes above which its coordinates are in doubt, and the least number of boxes
# that show another convention than relative coordinates.
_MANY_TINY, _MANY, _MIN_COUNT = 0.05, 0.2, 3

# (height, width) that annotations state in pixels; None for a value that they do not state.
StatedSize = tuple[int | None, int | None]


class CheckedBox(NamedTuple):
    """A usable box.

    Attributes:
      box: (ymin, xmin, ymax, xmax), normalized to the image, within [0, 1].
      is_clipped: whether it was cut at the image's edge.
    """

    box: tuple[float, float, float, float]
    is_clipped: bool


def check_image(
    encoded: bytes, stated: StatedSize, max_pixels: int = image_files.MAX_PIXELS
) -> ImageFile:
    """Decodes an image file and compares its size with the annotations'.

    Raises:
      UnusableError: if the file is corrupt, has a format that TensorFlow does not decode, has too
        many pixels, or another size than the annotations say.
    """
    image_files.check(encoded, max_pixels)
    return read_image(encoded, stated, max_pixels)


def read_image(
    encoded: bytes, stated: StatedSize, max_pixels: int = image_files.MAX_PIXELS
) -> ImageFile:
    """Makes an image file upright and compares its size; decodes it only if it must be changed.

    Raises:
      UnusableError: as `check_image`, but corrupt image data may not be detected.
    """
    file = image_files.read_upright(encoded, stated_size=stated, max_pixels=max_pixels)
    size = file.height, file.width
    if any(said not in (None, own) for said, own in zip(stated, size, strict=True)):
        raise UnusableError(
            'bad_image',
            f'is {file.height} pixels high and {file.width} wide; '
            f'the annotation file says {stated[0]} and {stated[1]}',
        )
    return file


def check_box(
    ymin: float, xmin: float, ymax: float, xmax: float, file: ImageFile, said: str = ''
) -> CheckedBox:
    """Checks and normalizes a box.

    Args:
      ymin, xmin, ymax, xmax: the box, in pixels.
      file: the image's size.
      said: the box as the annotations give it, for errors.

    Raises:
      UnusableError: if it is not finite, is inverted or empty, or lies outside of the image.
    """
    sides = (ymin, xmin, ymax, xmax)
    said = said or f'(ymin, xmin, ymax, xmax) is {sides}'
    if not all(map(math.isfinite, sides)):
        raise UnusableError('bad_box', f'the box must be finite; {said}')
    if ymax <= ymin or xmax <= xmin:
        raise UnusableError('box_without_area', said)
    overhang = max(-xmin, -ymin, xmax - file.width, ymax - file.height, 0.0)
    top, left = max(ymin, 0.0), max(xmin, 0.0)
    bottom, right = min(ymax, file.height), min(xmax, file.width)
    remainder = min(bottom - top, right - left)
    if remainder <= 0 or (overhang > 0 and remainder < MIN_REMAINDER):
        raise UnusableError(
            'box_outside_image', f'{said}; the image is {file.width} wide and {file.height} high'
        )
    box = (top / file.height, left / file.width, bottom / file.height, right / file.width)
    return CheckedBox(box, overhang > 0)


def doubt_of_order(num_objects: int, num_without_area: int) -> str:
    """Returns why boxes without area may be no corners; '' if they are few.

    Args:
      num_objects: number of usable objects of a set.
      num_without_area: number of boxes of which a maximum is not above its minimum.
    """
    total = num_objects + num_without_area
    if num_without_area < _MIN_COUNT or num_without_area <= _MANY * total:
        return ''
    return (
        f'{num_without_area} of {total} boxes have a maximum that is not above its minimum; are '
        'they [x, y, width, height] where corners are expected, or in another order?'
    )


def doubt(notes: Mapping[str, int], num_objects: int, num_outside: int = 0) -> str:
    """Returns why the coordinates of a set may mean something else than in its format; '' if none.

    Args:
      notes: sums of `annotated_image.notes_of_boxes`.
      num_objects: number of usable objects.
      num_outside: number of boxes that lie outside of their images.
    """
    tiny = notes.get(annotated_image.FIRST_PIXEL, 0)
    if tiny > _MANY_TINY * num_objects:
        return (
            f'{tiny} of {num_objects} boxes lie within the first pixel of their image; are they '
            'relative (0..1) where pixels are expected?'
        )
    start, short, other = (
        notes.get(name, 0)
        for name in (
            annotated_image.CLIPPED_START,
            annotated_image.CLIPPED_SHORT_END,
            annotated_image.CLIPPED_OTHER_END,
        )
    )
    end, total = short + other, num_objects + num_outside
    beyond = start + end + num_outside
    if beyond < _MIN_COUNT or beyond <= _MANY * total:
        return ''
    # It is not known on which side boxes are outside.
    is_known = start + end >= max(_MIN_COUNT, _MANY * beyond)
    kind = ''
    if is_known and start > 4 * end:
        kind = 'to the left or above; are x and y a corner where the center is expected?'
    elif is_known and short > 4 * (start + other):
        kind = 'at the end of its shorter side; are x and y swapped?'
    elif is_known and end > 4 * start:
        kind = (
            'to the right or below; are they [x1, y1, x2, y2] where [x, y, width, height] is '
            'expected, or those of an image of another size?'
        )
    said = f'{beyond} of {total} boxes reach beyond their image'
    if kind:
        return f'{said}, most of them {kind}'
    if beyond > max(total / 2, 3 * _MIN_COUNT):
        return (
            f'{said}; do their numbers mean something else, such as pixels where relative '
            'coordinates are expected, or [x1, y1, x2, y2] where a center and a size are?'
        )
    return ''


def ignored(
    classes: Sequence[Hashable], flags: Mapping[str, Sequence[float]]
) -> Counter[tuple[str, Hashable]]:
    """Counts the objects that `IGNORED` describes.

    Args:
      classes: the class of each object.
      flags: key of `IGNORED` -> the value of each object.

    Returns:
      (key, class) -> number of objects; the key is '' for objects without any of the flags.
    """
    counts: Counter[tuple[str, Hashable]] = Counter()
    for row, value in enumerate(classes):
        kinds = [key for key in flags if (flags[key][row] <= 0) == (key == keys.WEIGHT)]
        counts.update((kind, value) for kind in kinds or [''])
    return counts


def said_of_ignored(
    objects: Mapping[Hashable, int], counts: Mapping[tuple[str, Hashable], int]
) -> tuple[str, list[str]]:
    """Describes the objects of a set that do not count as others do.

    Args:
      objects: name of a class -> number of its objects.
      counts: sums of `ignored`.

    Returns:
      A sentence if no object of the set counts, '' otherwise; and sentences about classes of which
      most objects do not.
    """
    total = sum(objects.values())
    of_kind = {kind: [key for key in counts if key[0] == kind] for kind in IGNORED}
    if total and not any(count for (kind, _), count in counts.items() if not kind):
        found = (
            f'{sum(counts[key] for key in of_kind[kind])} are {text}'
            for kind, text in IGNORED.items()
            if of_kind[kind]
        )
        text = 'No record has an object that can be trained on and evaluated'
        return f'{text}: of {total}, {"; ".join(found)}.', []
    sentences = []
    for kind, text in IGNORED.items():
        most = [
            f'{name} ({counts[kind, name]} of {objects[name]})'
            for _, name in of_kind[kind]
            if counts[kind, name] > objects[name] / 2
        ]
        if most:
            sentences.append(f'Most objects of these classes are {text}: {format_list(most)}.')
    return '', sentences
