"""Runs a detector on images, and adds what it detects to them.

One job adds boxes to images whose species is known, but not where the animals are; the other adds
embeddings of detected objects, which are what Context R-CNN remembers of them.

(Beery et al., "Context R-CNN: Long Term Temporal Context for Per-Camera Object Detection",
https://arxiv.org/abs/1912.03538)
"""

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from object_detection.core import tf_example_keys as keys
from object_detection.core.fields import DetectionFields
from object_detection.data import context_embeddings, tf_examples
from object_detection.dataset_tools.context_rcnn import models, record_job
from object_detection.dataset_tools.context_rcnn import options as job_options
from object_detection.dataset_tools.context_rcnn.models import Model, Outputs
from object_detection.dataset_tools.context_rcnn.options import DetectionOptions, EmbeddingOptions
from object_detection.dataset_tools.context_rcnn.record_job import Counts
from object_detection.dataset_tools.context_rcnn.records import Example
from object_detection.errors import expected

# What the reports count.
COUNTS = ('already_with_boxes', 'several_classes', 'without_class', 'with_new_boxes', 'new_boxes')
EMBEDDING_COUNTS = (
    *('bad_images', 'embeddings', 'without_embedding', 'without_date', 'embedded_again'),
)


def run(
    options: DetectionOptions,
    beam_options: Iterable[str] = (),
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Any]:
    """Runs the job that adds boxes.

    Returns:
      The report: 'records', 'num_shards', and the numbers of images: 'bad_images', which cannot be
      decoded, and those of 'several_classes', both of which are left out; 'already_with_boxes',
      'without_class' and 'with_new_boxes'; and the number of 'new_boxes'.

    Raises:
      UserError: if an option, the model or an input cannot be used.
    """
    job_options.check(options)
    model = Model(options.detection_model_dir, options.batch_size)
    add = functools.partial(add_boxes, threshold=options.confidence_threshold)
    job = record_job.Job(
        options,
        'detection_',
        record_job.all_records,
        DetectingMaker(model, add, needs_boxes),
        COUNTS,
        drops='images of several classes, and those that cannot be decoded, are left out',
    )
    model.check()
    return record_job.run(job, beam_options, progress)


def run_embeddings(
    options: EmbeddingOptions,
    beam_options: Iterable[str] = (),
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Any]:
    """Runs the job that adds embeddings.

    Returns:
      The report: 'records', 'num_shards', the number of 'embeddings', and the numbers of images:
      'bad_images', which cannot be decoded and are left out, 'without_embedding', 'without_date'
      and 'embedded_again' (which had some).

    Raises:
      UserError: if an option, the model or an input cannot be used.
    """
    job_options.check(options)
    top_k, bottom_k = options.top_k_embedding_count, options.bottom_k_embedding_count
    if not top_k + bottom_k:
        what = 'at least one embedding of an image'
        raise expected('--top_k_embedding_count and --bottom_k_embedding_count', what, '0 of both')
    features = models.features_output(options.embedding_type)
    model = Model(options.embedding_model_dir, options.batch_size, features)
    add = functools.partial(add_embeddings, features=features, top_k=top_k, bottom_k=bottom_k)
    job = record_job.Job(
        options,
        'embedding_',
        record_job.all_records,
        DetectingMaker(model, add),
        EMBEDDING_COUNTS,
        drops='images that cannot be decoded are left out',
    )
    model.check()
    return record_job.run(job, beam_options, progress)


class DetectingMaker(NamedTuple):
    """Writes images with what a model detects in them, see `record_job.RecordMaker`.

    Attributes:
      model: the detector.
      add: returns the record of an image, its outputs and the counts; b'' leaves it out.
      is_wanted: whether the model runs on an image.
    """

    model: Model
    add: Callable[..., bytes]
    is_wanted: Callable[[Example], bool] | None = None

    def make(self, entries: Iterable[Any], counts: Counts) -> Iterator[bytes]:
        images = record_job.read_places(entries)
        for example, outputs in self.model.run(images, counts, self.is_wanted):
            if record := self.add(example, outputs, counts=counts):
                yield record


def needs_boxes(example: Example) -> bool:
    """Whether an image has no boxes and exactly one class, which is not 0 (empty)."""
    if example.count(keys.YMIN):
        return False
    classes = image_classes(example)
    return len(classes) == 1 and classes[0][0] >= 1


def add_boxes(example: Example, outputs: Outputs, threshold: float, counts: Counts) -> bytes:
    """Returns the record of an image with its boxes.

    All features of the image are kept. Boxes get the one class of the image; an image without a
    class, or of the class 0 (empty), gets none, and one that has boxes keeps them.

    Args:
      example: the image.
      outputs: its detections, see `Model.run`; only used for an image that `needs_boxes`.
      threshold: lowest score of a box.
      counts: to count in, for the report.

    Returns:
      b'' for an image of several classes, which is left out.
    """
    if example.count(keys.YMIN):
        counts['already_with_boxes'] += 1
        return example.with_features({})
    classes = image_classes(example)
    if len(classes) > 1:
        counts['several_classes'] += 1
        return b''
    if not classes or classes[0][0] < 1:
        counts['without_class'] += 1
        return example.with_features(
            _boxes_features(np.zeros((0, 4)), np.zeros(0), 0, b'') | _class_features(classes)
        )
    is_good = outputs[DetectionFields.SCORES] >= np.float32(threshold)
    boxes = outputs[DetectionFields.BOXES][is_good]
    counts['with_new_boxes'] += bool(len(boxes))
    counts['new_boxes'] += len(boxes)
    scores = outputs[DetectionFields.SCORES][is_good]
    return example.with_features(
        _boxes_features(boxes, scores, *classes[0]) | _class_features(classes)
    )


def image_classes(example: Example) -> list[tuple[int, bytes]]:
    """Returns the different (label, text) of an image without boxes.

    They are the classes of objects without boxes, as the reference writes them, or those of the
    image.
    """
    for label_key, text_key in (
        (keys.CLASS_LABEL, keys.CLASS_TEXT),
        (keys.IMAGE_CLASS_LABEL, keys.IMAGE_CLASS_TEXT),
    ):
        if labels := list(example.integers(label_key)):
            texts = list(example.texts(text_key))
            texts += [b''] * (len(labels) - len(texts))
            return list(dict(zip(labels, texts[: len(labels)], strict=True)).items())
    return []


def _class_features(classes: list[tuple[int, bytes]]) -> dict[str, bytes]:
    """Returns the classes of the image, which objects without boxes no longer say."""
    if not classes:
        return {}
    labels, texts = zip(*classes, strict=True)
    return {
        keys.IMAGE_CLASS_LABEL: tf_examples.int64_feature(labels),
        keys.IMAGE_CLASS_TEXT: tf_examples.bytes_feature(texts),
    }


def _boxes_features(
    boxes: np.ndarray, scores: np.ndarray, label: int, text: bytes
) -> dict[str, bytes]:
    sides = {key: tf_examples.float_feature(boxes[:, i]) for i, key in enumerate(keys.BOX_SIDES)}
    return {
        **sides,
        keys.CLASS_LABEL: tf_examples.int64_feature([label] * len(boxes)),
        keys.CLASS_TEXT: tf_examples.bytes_feature([text] * len(boxes)),
        keys.CLASS_SCORE: tf_examples.float_feature(scores),
    }


def add_embeddings(
    example: Example, outputs: Outputs, features: str, top_k: int, bottom_k: int, counts: Counts
) -> bytes:
    """Returns the record of an image with the embeddings of its detections.

    Embeddings, see `context_embeddings.embed`, that the image has are replaced; a detection is
    embedded once.

    Args:
      example: the image.
      outputs: its detections, the best first, see `Model.run`.
      features: name of the features among the outputs, float32 [n, C].
      top_k: number of embeddings of the best scores, which are the first ones.
      bottom_k: number of embeddings of the lowest scores among the others, the lowest first.
      counts: to count in, for the report.
    """
    num_detections = len(outputs[DetectionFields.SCORES])
    top = range(min(top_k, num_detections))
    bottom = range(num_detections - 1, max(len(top), num_detections - bottom_k) - 1, -1)
    chosen = [*top, *bottom]
    time = context_embeddings.time_of(example.text(keys.DATE_CAPTURED))
    rows = context_embeddings.embed(
        outputs[features][chosen], outputs[DetectionFields.BOXES][chosen], time
    )
    counts['embeddings'] += len(chosen)
    counts['without_embedding'] += not chosen
    counts['without_date'] += time is None
    counts['embedded_again'] += keys.EMBEDDING in example
    new = {
        keys.EMBEDDING: tf_examples.float_feature(rows.ravel()),
        keys.EMBEDDING_SCORE: tf_examples.float_feature(outputs[DetectionFields.SCORES][chosen]),
        keys.EMBEDDING_LENGTH: tf_examples.int64_feature([rows.shape[1]]),
        keys.EMBEDDING_COUNT: tf_examples.int64_feature([len(chosen)]),
    }
    if time is not None:
        seconds = int(time.timestamp())
        new[keys.UNIX_TIME] = tf_examples.float_feature([seconds])
        new[keys.UNIX_SECONDS] = tf_examples.int64_feature([seconds])
    return example.with_features(new)
