"""Drawing on images, under the names of the reference; `visualization.drawing` draws.

The functions `..._on_image_array` change the array in place. This module does not import
TensorFlow.
"""

import io
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from PIL import Image, ImageColor, ImageDraw

from object_detection.errors import UserError
from object_detection.system import files
from object_detection.utils import missing
from object_detection.visualization import drawing

# Names of colours that each have a good contrast to white and to black text.
STANDARD_COLORS = sorted(
    name
    for name, value in ImageColor.colormap.items()
    if not isinstance(value, str) or 96 < ImageColor.getcolor(value, 'L') < 224
)

_TENSORBOARD = 'evaluation writes the pictures (eval_config.num_visualizations)'
_BY_ARRAY = 'call visualize_boxes_and_labels_on_image_array for each image'
_GRAY = (128, 128, 128)
__getattr__ = missing(
    __name__,
    {
        'draw_bounding_boxes_on_image_tensors': _BY_ARRAY,
        'draw_side_by_side_evaluation_image': _TENSORBOARD,
        'draw_heatmaps_on_image_array': 'no detector predicts heat maps',
        'draw_float_channel_on_image_array': 'no detector predicts maps of numbers',
        'draw_densepose_visualizations': 'no detector predicts dense poses',
        'add_cdf_image_summary': 'TensorBoard draws histograms (tf.summary.histogram)',
        'add_hist_image_summary': 'TensorBoard draws histograms (tf.summary.histogram)',
        'VisualizeSingleFrameDetections': _TENSORBOARD,
        'EvalMetricOpsVisualization': _TENSORBOARD,
    },
)


def visualize_boxes_and_labels_on_image_array(
    image: np.ndarray,
    boxes: np.ndarray,
    classes: np.ndarray,
    scores: np.ndarray | None,
    category_index: Mapping[int, Mapping[str, Any]],
    instance_masks: np.ndarray | None = None,
    instance_boundaries: np.ndarray | None = None,
    keypoints: np.ndarray | None = None,
    keypoint_scores: np.ndarray | None = None,
    keypoint_edges: Sequence[tuple[int, int]] | None = None,
    track_ids: Sequence[int] | None = None,
    use_normalized_coordinates: bool = False,
    max_boxes_to_draw: int | None = 20,
    min_score_thresh: float = 0.5,
    agnostic_mode: bool = False,
    line_thickness: int = 4,
    mask_alpha: float = 0.4,
    groundtruth_box_visualization_color: str = 'black',
    skip_boxes: bool = False,
    skip_scores: bool = False,
    skip_labels: bool = False,
    skip_track_ids: bool = False,
) -> np.ndarray:
    """Draws detections, or with `scores` None annotated objects, on an image, in place.

    Args:
      image: uint8 [H, W, 3], RGB, writable.
      boxes: float [n, 4], [ymin, xmin, ymax, xmax].
      classes: int [n], 1-based.
      scores: float [n], or None: boxes have one colour and no labels.
      category_index: id -> {'name': ...}; an id without an entry is labelled 'N/A'.
      instance_masks: uint8 [n, H, W], 0 or 1, or None.
      instance_boundaries: uint8 [n, H, W], outlines drawn without transparency, or None.
      keypoints: float [n, P, 2], (y, x), or None; those that are not finite are left out.
      keypoint_scores: float [n, P]: keypoints below `min_score_thresh` are left out; or None.
      keypoint_edges: pairs of indices of keypoints to join by lines, or None.
      track_ids: n ids, which choose colours and are part of labels, or None.
      use_normalized_coordinates: whether boxes and keypoints are relative to the image; otherwise
        they are in pixels.
      max_boxes_to_draw: how many boxes are drawn, in their order; None is all.
      min_score_thresh: boxes with this score or a lower one are not drawn.
      agnostic_mode: one colour and no names of classes.
      line_thickness: in pixels.
      mask_alpha: opacity of masks, 0 to 1.
      groundtruth_box_visualization_color: colour of boxes without scores.
      skip_boxes, skip_scores, skip_labels, skip_track_ids: leave these out.

    Returns:
      `image`.

    Raises:
      UserError: if `image` is not uint8 [H, W, 3], or is read-only.
    """
    _check_image(image)
    scale = np.array(image.shape[:2]) if use_normalized_coordinates else np.ones(2)
    boxes = np.asarray(boxes, np.float64).reshape(-1, 4) * np.tile(scale, 2)
    is_drawn = np.isfinite(boxes).all(axis=1)
    if scores is not None:
        is_drawn &= np.asarray(scores) > min_score_thresh
    rows = np.flatnonzero(is_drawn)[: max_boxes_to_draw or None]
    has_names = not (agnostic_mode or skip_labels)
    colored = classes if track_ids is None else track_ids
    instances = []
    for i in rows:
        text, color = '', _rgb(groundtruth_box_visualization_color)
        if scores is not None:
            text = _label(
                category_index.get(int(classes[i]), {}).get('name', 'N/A') if has_names else None,
                None if skip_scores else f'{scores[i]:.0%}',
                None if track_ids is None or skip_track_ids else f'ID {track_ids[i]}',
            )
            color = _GRAY if agnostic_mode else drawing.class_color(int(colored[i]))
        mask = None if instance_masks is None else _mask(instance_masks[i], image)
        instances.append(
            drawing.Instance(tuple(boxes[i]), color, text, mask, has_outline=not skip_boxes)
        )
        if instance_boundaries is not None:
            draw_mask_on_image_array(image, instance_boundaries[i], 'red', alpha=1.0)
        if keypoints is not None:
            hidden = None if keypoint_scores is None else keypoint_scores[i]
            points = _visible(np.array(keypoints[i]) * scale, hidden, min_score_thresh)
            edges = tuple(keypoint_edges or ())
            instances[-1] = instances[-1]._replace(keypoints=points, edges=edges)
    # The boxes of the best scores, which come first, are drawn last.
    image[...] = drawing.paint(image, instances[::-1], line_thickness, mask_alpha)
    return image


def draw_bounding_box_on_image_array(
    image: np.ndarray,
    ymin: float,
    xmin: float,
    ymax: float,
    xmax: float,
    color: str = 'red',
    thickness: int = 4,
    display_str_list: Sequence[str] = (),
    use_normalized_coordinates: bool = True,
) -> None:
    """Draws one box on an image, in place.

    Args:
      image: uint8 [H, W, 3], RGB, writable.
      ymin, xmin, ymax, xmax: the box, relative to the image or in pixels.
      color: name of a colour.
      thickness: of the lines, in pixels.
      display_str_list: texts at the box.
      use_normalized_coordinates: whether the box is relative to the image.

    Raises:
      UserError: if `image` is not uint8 [H, W, 3], or is read-only.
    """
    _check_image(image)
    scale = np.array(image.shape[:2] * 2) if use_normalized_coordinates else 1.0
    box = np.array([ymin, xmin, ymax, xmax], np.float64) * scale
    drawn = drawing.Instance(tuple(box), _rgb(color), ', '.join(display_str_list))
    image[...] = drawing.paint(image, [drawn], thickness)


def draw_bounding_box_on_image(image: Image.Image, *box: float, **options: Any) -> None:
    """Draws one box on a PIL image, in place; see `draw_bounding_box_on_image_array`."""
    _on_pil_image(draw_bounding_box_on_image_array, image, *box, **options)


def draw_bounding_boxes_on_image_array(
    image: np.ndarray,
    boxes: np.ndarray,
    color: str = 'red',
    thickness: int = 4,
    display_str_list_list: Sequence[Sequence[str]] = (),
) -> None:
    """Draws boxes, float [n, 4] relative to the image, in place.

    See `draw_bounding_box_on_image_array`; `display_str_list_list` has the texts of each box.

    Raises:
      UserError: also if `boxes` is of another shape.
    """
    boxes = np.asarray(boxes)
    if boxes.ndim != 2 or boxes.shape[1] != 4:
        raise UserError(f'Expected boxes of shape [n, 4]. Received: {list(boxes.shape)}.')
    for i, box in enumerate(boxes):
        texts = display_str_list_list[i] if len(display_str_list_list) else ()
        draw_bounding_box_on_image_array(image, *box, color, thickness, texts)


def draw_bounding_boxes_on_image(image: Image.Image, boxes: np.ndarray, *options, **named) -> None:
    """Draws boxes on a PIL image, in place; see `draw_bounding_boxes_on_image_array`."""
    _on_pil_image(draw_bounding_boxes_on_image_array, image, boxes, *options, **named)


def draw_keypoints_on_image_array(
    image: np.ndarray,
    keypoints: np.ndarray,
    keypoint_scores: np.ndarray | None = None,
    min_score_thresh: float = 0.5,
    color: str = 'red',
    radius: int = 2,
    use_normalized_coordinates: bool = True,
    keypoint_edges: Sequence[tuple[int, int]] | None = None,
    keypoint_edge_color: str = 'green',
    keypoint_edge_width: int = 2,
) -> None:
    """Draws keypoints, float [P, 2] (y, x), on an image, in place.

    Args:
      image: uint8 [H, W, 3], RGB, writable.
      keypoints: those that are not finite are left out.
      keypoint_scores: float [P]: keypoints below `min_score_thresh` are left out; or None.
      min_score_thresh: see above.
      color: name of the colour of the dots.
      radius: of the dots, in pixels.
      use_normalized_coordinates: whether keypoints are relative to the image.
      keypoint_edges: pairs of indices of keypoints to join by lines, or None.
      keypoint_edge_color, keypoint_edge_width: name of the colour and pixels of these lines.

    Raises:
      UserError: if `image` is not uint8 [H, W, 3], or is read-only.
    """
    _check_image(image)
    scale = np.array(image.shape[:2]) if use_normalized_coordinates else 1.0
    points = _visible(np.array(keypoints) * scale, keypoint_scores, min_score_thresh)
    picture = Image.fromarray(image)
    draw = ImageDraw.Draw(picture)
    for ends in keypoint_edges or ():
        line = points[list(ends)]
        if np.isfinite(line).all():
            xy = [(x, y) for y, x in line.tolist()]
            draw.line(xy, _rgb(keypoint_edge_color), keypoint_edge_width)
    for y, x in points[np.isfinite(points).all(axis=-1)].tolist():
        draw.ellipse([(x - radius, y - radius), (x + radius, y + radius)], _rgb(color))
    image[...] = picture


def draw_keypoints_on_image(image: Image.Image, keypoints: np.ndarray, *options, **named) -> None:
    """Draws keypoints on a PIL image, in place; see `draw_keypoints_on_image_array`."""
    _on_pil_image(draw_keypoints_on_image_array, image, keypoints, *options, **named)


def draw_mask_on_image_array(
    image: np.ndarray, mask: np.ndarray, color: str = 'red', alpha: float = 0.4
) -> None:
    """Tints the pixels of a mask, uint8 [H, W] of 0 and 1, in place.

    Args:
      image: uint8 [H, W, 3], RGB, writable.
      mask: of the size of the image.
      color: name of a colour.
      alpha: opacity, 0 to 1.

    Raises:
      UserError: if `image` is not uint8 [H, W, 3] or is read-only, or `mask` is of another type or
        size.
    """
    _check_image(image)
    mask = np.asarray(mask)
    if mask.dtype != np.uint8 or mask.shape != image.shape[:2]:
        raise UserError(
            f'Expected a mask uint8 {list(image.shape[:2])}. Received: {mask.dtype} '
            f'{list(mask.shape)}.'
        )
    opacity = alpha * (mask > 0)[..., np.newaxis]
    image[...] = np.rint(image * (1 - opacity) + np.array(_rgb(color)) * opacity)


def save_image_array_as_png(image: np.ndarray, output_path: str) -> None:
    """Writes an image, uint8 [H, W, 3], as a PNG file."""
    with files.replacing(output_path) as draft, open(draft, 'wb') as file:
        file.write(encode_image_array_as_png_str(image))


def encode_image_array_as_png_str(image: np.ndarray) -> bytes:
    """Returns the content of a PNG file of an image, uint8 [H, W, 3]."""
    with io.BytesIO() as content:
        Image.fromarray(np.uint8(image)).save(content, format='PNG')
        return content.getvalue()


def _label(*words: Any) -> str:
    return ': '.join(str(word) for word in words if word is not None)


def _rgb(color: str) -> tuple[int, int, int]:
    return ImageColor.getrgb(color)[:3]


def _mask(mask: np.ndarray, image: np.ndarray) -> np.ndarray:
    """Masks of the image's size are pasted already; others are relative to their boxes."""
    mask = np.asarray(mask)
    return mask > 0.5 if mask.shape == image.shape[:2] else mask.astype(np.float32)


def _visible(points: np.ndarray, scores: np.ndarray | None, min_score: float) -> np.ndarray:
    """Returns keypoints [P, 2], NaN where the score is too low."""
    if scores is None:
        return points
    return np.where((np.asarray(scores) < min_score)[:, np.newaxis], np.nan, points)


def _on_pil_image(draw: Callable, image: Image.Image, *arguments: Any, **options: Any) -> None:
    pixels = np.array(image.convert('RGB'))
    draw(pixels, *arguments, **options)
    image.paste(Image.fromarray(pixels))


def _check_image(image: np.ndarray) -> None:
    if not isinstance(image, np.ndarray) or image.dtype != np.uint8 or image.ndim != 3:
        received = f'{getattr(image, "dtype", type(image))} {list(getattr(image, "shape", []))}'
    elif image.shape[2] != 3:
        received = f'{image.dtype} {list(image.shape)}'
    elif not image.flags.writeable:
        received = 'a read-only array; draw on a copy, `image.copy()`'
    else:
        return
    raise UserError(f'Expected a NumPy image uint8 [H, W, 3] to draw on. Received: {received}.')
