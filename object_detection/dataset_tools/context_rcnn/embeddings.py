"""Adds embeddings of detected objects to images: what Context R-CNN remembers of them.

(Beery et al., "Context R-CNN: Long Term Temporal Context for Per-Camera Object Detection",
https://arxiv.org/abs/1912.03538)
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from object_detection.core import tf_example_keys as keys
from object_detection.core.fields import DetectionFields
from object_detection.data import context_embeddings, tf_examples
from object_detection.dataset_tools.context_rcnn import models, record_job
from object_detection.dataset_tools.context_rcnn import options as job_options
from object_detection.dataset_tools.context_rcnn.models import Model, Outputs
from object_detection.dataset_tools.context_rcnn.options import EmbeddingOptions
from object_detection.dataset_tools.context_rcnn.record_job import Counts
from object_detection.dataset_tools.context_rcnn.records import Example
from object_detection.errors import UserError

# What the report counts.
COUNTS = ('bad_images', 'embeddings', 'without_embedding', 'without_date', 'embedded_again')


def run(
    options: EmbeddingOptions,
    beam_options: Iterable[str] = (),
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Any]:
    """Runs the job.

    Returns:
      The report: 'records', 'num_shards', the number of 'embeddings', and the numbers of images:
      'bad_images', which cannot be decoded and are left out, 'without_embedding', 'without_date'
      and 'embedded_again' (which had some).

    Raises:
      UserError: if an option, the model or an input cannot be used.
    """
    job_options.check(options)
    if not options.top_k_embedding_count + options.bottom_k_embedding_count:
        raise UserError(
            '--top_k_embedding_count and --bottom_k_embedding_count: expected at least one '
            'embedding of an image. Received: 0 of both.'
        )
    features = models.features_output(options.embedding_type)
    model = Model(options.embedding_model_dir, options.batch_size, features)
    model.check()
    maker = EmbeddingMaker(
        model, features, options.top_k_embedding_count, options.bottom_k_embedding_count
    )
    job = record_job.Job(
        options.embedding_input_tfrecord,
        'embedding_input_tfrecord',
        options.embedding_output_tfrecord,
        options.num_shards,
        record_job.all_records,
        maker,
        COUNTS,
        drops='images that cannot be decoded are left out',
    )
    return record_job.run(
        job,
        workers=options.workers,
        runner=options.runner,
        beam_options=list(beam_options),
        progress=progress,
    )


class EmbeddingMaker:
    """Writes images with their embeddings, see `record_job.RecordMaker`.

    Args:
      model: the detector.
      features: name of its output that is embedded.
      top_k, bottom_k: numbers of embeddings of the best, and of the lowest, scores.
    """

    def __init__(self, model: Model, features: str, top_k: int, bottom_k: int):
        self._model = model
        self._features = features
        self._top_k = top_k
        self._bottom_k = bottom_k

    def make(self, entries: Iterable[Any], counts: Counts) -> Iterator[bytes]:
        for example, outputs in self._model.run(record_job.read_places(entries), counts):
            yield add_embeddings(
                example, outputs, self._features, self._top_k, self._bottom_k, counts
            )


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
