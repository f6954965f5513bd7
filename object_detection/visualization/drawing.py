"""Draws boxes, masks, keypoints and labels on images, and puts pictures together.

Draws examples as augmentation steps take and return them.
"""

import colorsys
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from PIL import Image, ImageColor, ImageDraw, ImageFont

from object_detection.core.detections import Detections
from object_detection.core.fields import InputFields as F
from object_detection.errors import expected
from object_detection.metrics.mask_pasting import MASK_THRESHOLD, mask_window

_MASK_OPACITY = 0.45
_OUTLINE_OPACITY = 0.9
# The step between hues, the fraction of the golden ratio, which separates any number of them.
_HUE_STEP = 0.618034
# Pairs (saturation, value), in which classes of similar hue differ too.
_TONES = ((0.85, 1.0), (0.95, 0.75), (0.55, 1.0))
_MIN_KEYPOINT_SCORE = 0.05
_CAPTION_COLOR = (32, 33, 36)
# Size of an image whose font the titles and captions of a row have.
_ROW_TEXT = 448
# Size up to which images are enlarged.
_LEGIBLE_SIZE = 512


class Instance(NamedTuple):
    """What is drawn of one object.

    Attributes:
      box: [ymin, xmin, ymax, xmax] in pixels of the image.
      color: RGB in 0..255.
      label: text at the box; empty for none.
      mask: as an element of `masks` of `draw_instances`, or None.
      keypoints: float [P, 2], (y, x) in pixels, not finite where there is none; or None.
      edges: pairs of rows of `keypoints` between which lines are drawn.
      has_outline: whether the box is drawn.
    """

    box: tuple[float, float, float, float]
    color: tuple[int, int, int]
    label: str = ''
    mask: np.ndarray | None = None
    keypoints: np.ndarray | None = None
    edges: Sequence[tuple[int, int]] = ()
    has_outline: bool = True


class _Rectangle(NamedTuple):
    left: int
    top: int
    right: int
    bottom: int


def draw_instances(
    image: np.ndarray,
    boxes_absolute: np.ndarray,
    classes: Sequence[int] | Sequence[str] | np.ndarray | None,
    *,
    scores: np.ndarray | None = None,
    masks: Sequence[np.ndarray] | np.ndarray | None = None,
    keypoints: np.ndarray | None = None,
    edges: Sequence[tuple[int, int]] = (),
    names: Mapping[int, str] | None = None,
    min_score: float = 0.5,
    max_boxes: int = 20,
    line_thickness: int | None = None,
    mask_opacity: float = _MASK_OPACITY,
    scale: int = 1,
    shows_scores: bool = True,
    track_ids: np.ndarray | None = None,
) -> np.ndarray:
    """Draws instances on a copy of an image: masks below, then boxes, keypoints and labels.

    Args:
      image: uint8 [H, W, 3], RGB, or [H, W, 1], grey.
      boxes_absolute: float [n, 4], [ymin, xmin, ymax, xmax] in pixels of `image`.
      classes: n ids, 1-based, or n names; a class always has the same colour. None if there are no
        classes.
      scores: float [n]; None draws all instances, such as annotated ones.
      masks: n arrays, each either the pasted mask, uint8 or bool [H, W], or probabilities relative
        to the box, float [mask height, mask width]; or None.
      keypoints: float [n, P, 2], (y, x) in pixels of `image`, drawn as dots; those that are not
        finite are left out; or None.
      edges: pairs of rows of keypoints, from 0 to P - 1, between which lines are drawn where both
        are finite.
      names: class id -> name; an id without a name is drawn as a number, an empty name not at all.
      min_score: instances with lower scores are not drawn.
      max_boxes: maximum number of instances to draw, in descending order of scores.
      line_thickness: line thickness of boxes, in pixels; None chooses by the picture's size.
      mask_opacity: opacity of the tint of masks, 0 to 1; their outlines are tinted more strongly.
      scale: factor by which the picture is enlarged, so that labels on a small image are readable.
      shows_scores: whether labels contain the scores.
      track_ids: int [n], numbers of objects in a video, which labels and colours are then of.

    Returns:
      uint8 [H * scale, W * scale, 3].

    Raises:
      ValueError: if `image` is not uint8 of 1 or 3 channels, or arguments differ in their number of
        rows.
    """
    image = np.asarray(image)
    if image.dtype != np.uint8 or image.ndim != 3 or image.shape[-1] not in (1, 3):
        raise expected(
            'draw_instances', 'uint8 [H, W, 1] or uint8 [H, W, 3]', f'{image.dtype} {image.shape}'
        )
    image = np.broadcast_to(image, (*image.shape[:2], 3))
    given = {'scores': scores, 'masks': masks, 'keypoints': keypoints, 'track_ids': track_ids}
    instances = _choose(boxes_absolute, classes, names, min_score, max_boxes, shows_scores, **given)
    if keypoints is not None and len(edges):
        instances = [instance._replace(edges=edges) for instance in instances]
    if scale != 1:
        size = np.array(image.shape[:2]) * scale
        image = _resize(image, size, Image.Resampling.BICUBIC)
        instances = [_enlarge_instance(instance, scale) for instance in instances]
    return paint(image, instances, line_thickness, mask_opacity)


def paint(
    image: np.ndarray,
    instances: Sequence[Instance],
    line_thickness: int | None = None,
    mask_opacity: float = _MASK_OPACITY,
) -> np.ndarray:
    """Draws instances on a copy of an image, the first below the others.

    Args:
      image: uint8 [H, W, 3], RGB.
      instances: what to draw.
      line_thickness: line thickness of boxes, in pixels; None chooses by the picture's size.
      mask_opacity: opacity of the tint of masks, 0 to 1; their outlines are tinted more strongly.

    Returns:
      uint8 [H, W, 3].
    """
    canvas = image.copy()
    for instance in instances:
        if instance.mask is not None:
            _blend_mask(canvas, instance, mask_opacity)
    picture = Image.fromarray(canvas)
    draw = ImageDraw.Draw(picture)
    size = min(picture.size)
    thickness = line_thickness or max(1, round(size / 250))
    for instance in instances:
        if instance.has_outline:
            _draw_box(draw, instance, thickness)
    for instance in instances:
        _draw_edges(draw, instance, thickness)
        _draw_keypoints(draw, instance, radius=1.5 * thickness)
    font, taken = _font(size), []
    for instance in reversed(instances):
        _draw_label(draw, instance, font, taken, picture.size)
    return np.asarray(picture).copy()


def draw_detections(
    image: np.ndarray, found: Detections, *, scale: int | None = None, **options: Any
) -> np.ndarray:
    """Draws what was found in an image, without doubtful keypoints.

    Args:
      image, options: as for `draw_instances`.
      found: the detections.
      scale: factor by which the picture is enlarged; None enlarges small images, so that names are
        legible.
    """
    return draw_instances(
        image,
        found.boxes,
        found.classes,
        scores=found.scores,
        masks=found.masks,
        keypoints=visible_keypoints(found.keypoints, found.keypoint_scores),
        scale=scale or max(1, _LEGIBLE_SIZE // max(found.size)),
        track_ids=found.track_ids,
        **options,
    )


def visible_keypoints(keypoints: np.ndarray | None, scores: np.ndarray | None) -> np.ndarray | None:
    """Returns keypoints, float [n, P, 2], with NaN for those with too low scores [n, P] to draw.

    These are not above 0.05, as in detectron2: a score is the share of one cell of a heat map.
    """
    if keypoints is None or scores is None:
        return keypoints
    return np.where((np.asarray(scores) > _MIN_KEYPOINT_SCORE)[..., np.newaxis], keypoints, np.nan)


def outline_boxes(picture: np.ndarray, boxes_absolute: np.ndarray, color: str) -> np.ndarray:
    """Draws boxes without labels on a copy of a picture.

    Args:
      picture: uint8 [H, W, 3].
      boxes_absolute: float [n, 4], [ymin, xmin, ymax, xmax] in pixels of the picture.
      color: a name or number of CSS, such as 'black' or '#00ff00'.

    Returns:
      uint8 [H, W, 3].
    """
    canvas = Image.fromarray(picture)
    draw = ImageDraw.Draw(canvas)
    thickness = max(1, round(min(canvas.size) / 250))
    for box in boxes_absolute[np.isfinite(boxes_absolute).all(axis=1)]:
        instance = Instance(tuple(box), ImageColor.getrgb(color))
        _draw_box(draw, instance, thickness)
    return np.asarray(canvas).copy()


def side_by_side(
    left: np.ndarray, right: np.ndarray, captions: tuple[str, str] = ('ground truth', 'detections')
) -> np.ndarray:
    """Combines two pictures of the same height side by side, each below its caption.

    Args:
      left, right: uint8 [H, W, 3] and [H, W2, 3].
      captions: captions of the two pictures.

    Returns:
      uint8 [H + caption height, W + gap + W2, 3].

    Raises:
      ValueError: if the heights differ.
    """
    if left.shape[0] != right.shape[0]:
        raise expected('side_by_side', 'pictures of one height', f'{left.shape} and {right.shape}')
    height, left_width = left.shape[:2]
    font = _font(min(left.shape[:2]))
    bar = round(font.size * 1.6)
    gap = max(2, round(left_width / 100))
    canvas = Image.new('RGB', (left_width + gap + right.shape[1], height + bar), 'white')
    draw = ImageDraw.Draw(canvas)
    for picture, caption, x in zip((left, right), captions, (0, left_width + gap), strict=True):
        canvas.paste(Image.fromarray(picture), (x, bar))
        middle = (x + picture.shape[1] / 2, bar / 2)
        draw.text(middle, caption, fill=_CAPTION_COLOR, font=font, anchor='mm')
    return np.asarray(canvas).copy()


def row(
    pictures: Sequence[np.ndarray], cell: int, *, title: str = '', captions: Sequence[str] = ()
) -> np.ndarray:
    """Combines pictures side by side, on white, each centred in its column.

    Args:
      pictures: uint8 [H, W, 3], of any sizes, each at most `cell` pixels wide.
      cell: width of a column.
      title: text above all of them, if any.
      captions: a text below each picture, or none.

    Returns:
      uint8 [height, width, 3].
    """
    font = _font(_ROW_TEXT)
    bar, gap = round(font.size * 1.7), max(2, cell // 40)
    top = bar if title else gap
    height = max(picture.shape[0] for picture in pictures)
    size = (len(pictures) * (cell + gap) + gap, top + height + (bar if captions else 0) + gap)
    canvas = Image.new('RGB', size, 'white')
    draw = ImageDraw.Draw(canvas)
    draw.text((gap, top / 2), title, fill=_CAPTION_COLOR, font=font, anchor='lm')
    middles = [gap + i * (cell + gap) + cell / 2 for i in range(len(pictures))]
    for picture, x in zip(pictures, middles, strict=True):
        corner = (round(x - picture.shape[1] / 2), top + (height - picture.shape[0]) // 2)
        canvas.paste(Image.fromarray(picture), corner)
    for caption, x in zip(captions, middles, strict=bool(captions)):
        place = (x, top + height + bar / 2)
        draw.text(place, caption, fill=_CAPTION_COLOR, font=font, anchor='mm')
    return np.asarray(canvas).copy()


def stacked(pictures: Sequence[np.ndarray]) -> np.ndarray:
    """Puts pictures, uint8 [H, W, 3] of any sizes, below each other on white, at the left."""
    width = max(picture.shape[1] for picture in pictures)
    return np.concatenate(
        [
            np.pad(picture, [(0, 0), (0, width - picture.shape[1]), (0, 0)], constant_values=255)
            for picture in pictures
        ]
    )


def class_color(class_id: int | str) -> tuple[int, int, int]:
    """Returns the colour of a class, RGB in 0..255: the same in every run."""
    number = zlib.crc32(class_id.encode('utf-8')) if isinstance(class_id, str) else int(class_id)
    saturation, value = _TONES[number % len(_TONES)]
    red, green, blue = colorsys.hsv_to_rgb(number * _HUE_STEP % 1.0, saturation, value)
    return round(red * 255), round(green * 255), round(blue * 255)


def _choose(
    boxes,
    classes,
    names,
    min_score,
    max_boxes,
    shows_scores,
    *,
    scores,
    masks,
    keypoints,
    track_ids,
) -> list[Instance]:
    """Returns the instances to draw, the largest first, so that small ones end up on top."""
    boxes = np.asarray(boxes, np.float64).reshape(-1, 4)
    classes = ['object'] * len(boxes) if classes is None else classes
    given = {'classes': classes, 'scores': scores, 'masks': masks, 'keypoints': keypoints}
    for name, rows in given.items():
        if rows is not None and len(rows) != len(boxes):
            raise expected(f'draw_instances: {name}', f'{len(boxes)} rows, one a box', len(rows))
    # Boxes of a diverged model, which are not finite, cannot be drawn.
    order = np.flatnonzero(np.isfinite(boxes).all(axis=1))
    if scores is not None:
        scores = np.asarray(scores)
        order = order[scores[order] >= min_score]
        order = order[np.argsort(-scores[order], kind='stable')]
    instances = []
    chosen = order[:max_boxes]
    areas = (boxes[chosen, 2] - boxes[chosen, 0]) * (boxes[chosen, 3] - boxes[chosen, 1])
    for i in chosen[np.argsort(-areas, kind='stable')]:
        class_id = classes[i] if isinstance(classes[i], str) else int(classes[i])
        label = str((names or {}).get(class_id, class_id))
        if scores is not None and shows_scores:
            label = f'{label} {scores[i]:.0%}'.strip()
        color = class_color(class_id)
        if track_ids is not None:
            label, color = f'#{track_ids[i]} {label}', class_color(int(track_ids[i]))
        mask = None if masks is None else masks[i]
        points = None if keypoints is None else np.asarray(keypoints[i], np.float64)
        instances.append(Instance(tuple(boxes[i]), color, label, mask, points))
    return instances


def _enlarge_instance(instance: Instance, scale: int) -> Instance:
    mask = instance.mask
    # Masks of probabilities are relative to the box and scale with it.
    if mask is not None and not np.issubdtype(np.asarray(mask).dtype, np.floating):
        mask = np.repeat(np.repeat(mask, scale, axis=0), scale, axis=1)
    return instance._replace(
        box=tuple(scale * value for value in instance.box),
        mask=mask,
        keypoints=None if instance.keypoints is None else scale * instance.keypoints,
    )


def _blend_mask(canvas: np.ndarray, instance: Instance, inner_opacity: float) -> None:
    """Tints the pixels of a mask in place, and its outline more strongly."""
    height, width = canvas.shape[:2]
    mask, top, left = np.asarray(instance.mask), 0, 0
    if np.issubdtype(mask.dtype, np.floating):
        mask, top, left = mask_window(mask, np.array(instance.box), height, width)
        mask = mask > MASK_THRESHOLD
    elif mask.shape == (height, width):
        rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
        if not rows.size:
            return
        top, left = rows[0], columns[0]
        mask = mask[top : rows[-1] + 1, left : columns[-1] + 1] > 0
    else:
        raise expected(
            'draw_instances: mask', f'the size of the image, {(height, width)}', mask.shape
        )
    opacity = np.where(_outline(mask), _OUTLINE_OPACITY, inner_opacity) * mask
    opacity = opacity[..., np.newaxis].astype(np.float32)
    window = canvas[top : top + mask.shape[0], left : left + mask.shape[1]]
    color = np.array(instance.color, np.float32)
    window[...] = np.rint(window * (1 - opacity) + color * opacity).astype(np.uint8)


def _outline(mask: np.ndarray) -> np.ndarray:
    """Returns which pixels of a mask have a neighbour outside it."""
    padded = np.pad(mask, 1)
    inner = padded[:-2, 1:-1] & padded[2:, 1:-1] & padded[1:-1, :-2] & padded[1:-1, 2:]
    return mask & ~inner


def _draw_box(draw: ImageDraw.ImageDraw, instance: Instance, thickness: int) -> None:
    ymin, xmin, ymax, xmax = (round(value) for value in instance.box)
    # The box covers the pixels from its minimum up to, not including, its maximum.
    corners = [(xmin, ymin), (max(xmin, xmax - 1), max(ymin, ymax - 1))]
    draw.rectangle(corners, outline=instance.color, width=thickness)


def _draw_edges(draw: ImageDraw.ImageDraw, instance: Instance, thickness: int) -> None:
    for ends in instance.edges:
        # The lines may be those of a label map for more keypoints.
        if not 0 <= min(ends) <= max(ends) < len(instance.keypoints):
            continue
        points = instance.keypoints[list(ends)]
        if np.isfinite(points).all():
            line = [(x, y) for y, x in points.tolist()]
            draw.line(line, fill=instance.color, width=thickness)


def _draw_keypoints(draw: ImageDraw.ImageDraw, instance: Instance, radius: float) -> None:
    """Draws a dot in the colour of the class, with a white border, at each finite keypoint."""
    if instance.keypoints is None:
        return
    for point in instance.keypoints[np.isfinite(instance.keypoints).all(axis=-1)]:
        top, left = np.rint(point - radius).astype(int).tolist()
        bottom, right = np.rint(point + radius).astype(int).tolist()
        corners = [(left, top), (right - 1, bottom - 1)]
        draw.ellipse(corners, fill=instance.color, outline='white', width=max(1, int(radius / 3)))


def _draw_label(
    draw: ImageDraw.ImageDraw,
    instance: Instance,
    font: ImageFont.FreeTypeFont,
    taken: list[_Rectangle],
    image_size: tuple[int, int],
) -> None:
    """Draws the label at the box where it covers other labels least, and records its rectangle."""
    if not instance.label:
        return
    padding = max(1, round(font.size / 6))
    _, _, right, bottom = draw.textbbox((0, 0), instance.label, font=font, anchor='la')
    width, height = round(right) + 2 * padding, round(bottom) + 2 * padding
    ymin, xmin, ymax, xmax = (round(value) for value in instance.box)
    places = [
        _inside(x, y, width, height, image_size)
        for x in (xmin, xmax - width)
        for y in (ymin - height, ymin, ymax)
    ]
    place = min(places, key=lambda place: sum(_overlap(place, other) for other in taken))
    taken.append(place)
    draw.rectangle([(place.left, place.top), (place.right - 1, place.bottom - 1)], instance.color)
    corner = (place.left + padding, place.top + padding)
    draw.text(corner, instance.label, fill=_ink(instance.color), font=font, anchor='la')


def _inside(left: int, top: int, width: int, height: int, size: tuple[int, int]) -> _Rectangle:
    """Moves a rectangle into an image of the given (width, height)."""
    left = max(0, min(left, size[0] - width))
    top = max(0, min(top, size[1] - height))
    return _Rectangle(left, top, left + width, top + height)


def _overlap(a: _Rectangle, b: _Rectangle) -> int:
    """Returns the common area."""
    height = min(a.bottom, b.bottom) - max(a.top, b.top)
    width = min(a.right, b.right) - max(a.left, b.left)
    return max(0, height) * max(0, width)


def _ink(background: tuple[int, int, int]) -> str:
    """Returns black or white, whichever has more contrast to the background."""
    red, green, blue = background
    return 'black' if 0.299 * red + 0.587 * green + 0.114 * blue > 125 else 'white'


def _font(image_size: int) -> ImageFont.FreeTypeFont:
    return ImageFont.load_default(size=max(10, min(32, round(image_size / 32))))


# Low, since the colours of objects are what many steps change.
_EXAMPLE_PICTURES_MASK_OPACITY = 0.25


def draw(
    example: Mapping[str, np.ndarray],
    names: Mapping[int, str] | None = None,
    *,
    keypoint_edges: Sequence[tuple[int, int]] = (),
    scale: float = 1.0,
    line_thickness: int | None = None,
) -> np.ndarray:
    """Draws an example with its boxes, masks, visible keypoints and class names.

    Args:
      example: the image, numbers [H, W, C], of which values outside of 0..255 are clipped and
        channels after the third are left out; boxes; classes, ids [n] or one-hot [n, K]; and, where
        there are any, masks in one of their two forms, keypoints and their visibilities.
      names: 1-based class id -> name; an empty name is not drawn.
      keypoint_edges: pairs of keypoints between which lines are drawn.
      scale: factor of the size of the picture.
      line_thickness: line thickness of boxes, in pixels; None chooses by the picture's size.

    Returns:
      uint8 [height, width, 3].
    """
    image = np.clip(np.round(np.asarray(example[F.IMAGE])), 0, 255).astype(np.uint8)
    image = image[..., :3] if image.shape[-1] >= 3 else image[..., :1]
    size = np.maximum(1, np.round(np.array(image.shape[:2]) * scale).astype(int))
    keypoints = _visible_keypoints(example)
    boxes = np.asarray(example[F.GROUNDTRUTH_BOXES])
    classes = np.asarray(example[F.GROUNDTRUTH_CLASSES])
    return draw_instances(
        _resize(image, size, Image.Resampling.BICUBIC),
        boxes * np.tile(size, 2),
        classes if classes.ndim == 1 else classes.argmax(axis=-1) + 1,
        masks=_masks(example, size),
        keypoints=None if keypoints is None else keypoints * size,
        edges=keypoint_edges,
        names=names,
        max_boxes=len(boxes),
        line_thickness=line_thickness,
        mask_opacity=_EXAMPLE_PICTURES_MASK_OPACITY,
    )


def _resize(image: np.ndarray, size: np.ndarray, method: Image.Resampling) -> np.ndarray:
    """Resizes uint8 [H, W, 1 or 3] to `size`, (height, width): uint8 [height, width, 1 or 3]."""
    if image.shape[:2] == tuple(size):
        return image
    height, width = size.tolist()
    pixels = Image.fromarray(image[..., 0] if image.shape[-1] == 1 else image)
    return np.asarray(pixels.resize((width, height), method)).reshape(height, width, -1)


def _masks(example: Mapping[str, np.ndarray], size: np.ndarray) -> list[np.ndarray] | None:
    """Returns masks relative to their boxes as probabilities, and masks of the image resized."""
    if F.GROUNDTRUTH_INSTANCE_MASK_CROPS in example:
        crops = np.asarray(example[F.GROUNDTRUTH_INSTANCE_MASK_CROPS])
        return list(crops.astype(np.float32) / 255.0)
    if F.GROUNDTRUTH_INSTANCE_MASKS not in example:
        return None
    masks = np.asarray(example[F.GROUNDTRUTH_INSTANCE_MASKS])
    return [_resize(mask[..., None], size, Image.Resampling.NEAREST)[..., 0] for mask in masks]


def _visible_keypoints(example: Mapping[str, np.ndarray]) -> np.ndarray | None:
    """Returns normalized keypoints, float [n, P, 2], with NaN in place of invisible ones."""
    if F.GROUNDTRUTH_KEYPOINTS not in example:
        return None
    keypoints = np.asarray(example[F.GROUNDTRUTH_KEYPOINTS])
    is_visible = np.asarray(example[F.GROUNDTRUTH_KEYPOINT_VISIBILITIES])
    return np.where(is_visible[..., np.newaxis], keypoints, np.nan)
