"""Runs a detector on the data of the eval_input_readers of a config, without metrics."""

import contextlib
import os
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from object_detection.builders import dataset_builder
from object_detection.builders.input_readers import corrupt_files
from object_detection.builders.input_readers import examples as examples_builder
from object_detection.core.detections import Detections
from object_detection.core.fields import InputFields
from object_detection.data.pipeline import bad_records
from object_detection.export import exporter
from object_detection.meta_architectures.detection_model import DetectionModel
from object_detection.metrics.detections import coco_image_id, coco_results
from object_detection.metrics.mask_pasting import PasteMethod
from object_detection.models import precision as precisions
from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig
from object_detection.system import folder_lock, json_lists
from object_detection.training import execution
from object_detection.training.evaluation.inference import make_predict
from object_detection.validation import eval_config as eval_config_rules

# Folder -> (number of images, number of detections).
Counts = dict[str, tuple[int, int]]


def predict_records(
    pipeline: TrainEvalPipelineConfig,
    checkpoint: str,
    output_directory: str | os.PathLike,
    *,
    precision: str | None = None,
    limit: int = 0,
    progress: Callable[[int, int | None], None] = lambda done, total: None,
) -> Counts:
    """Writes `detections.json`, a COCO results file, and `images.json` for each reader.

    An image's id is its source id, as a number if it is one. Both files are written batch by batch,
    under names that end in `.partial` until they are complete.

    Args:
      pipeline: the whole validated config.
      checkpoint: a folder, whose newest checkpoint is restored, or a prefix.
      output_directory: created if necessary; with several readers, each has a folder of its name in
        it.
      precision: a name that `precision.canonical` knows; None takes the config's.
      limit: maximum number of images of each reader; 0 takes all.
      progress: called with the number of finished images and None, since the total is unknown.

    Returns:
      Folder -> (number of images, number of detections).

    Raises:
      CheckpointError: if there is no checkpoint, or it is of another model.
      UserError: if another process writes into one of the folders; nothing is changed then.
      TooManyBadRecordsError: if too many records cannot be used.
    """
    output, names = pathlib.Path(output_directory), eval_config_rules.reader_names(pipeline)
    folders = [output / name for name in names] if len(names) > 1 else [output]
    counts: Counts = {}
    done = 0
    with contextlib.ExitStack() as stack:
        # All of them from the beginning, so that the results of two commands are not mixed.
        for folder in dict.fromkeys([output, *folders]):
            folder.mkdir(parents=True, exist_ok=True)
            stack.enter_context(folder_lock.sole_writer(folder))
        detector = exporter.load_detector(pipeline, checkpoint, precision)
        stack.enter_context(precisions.scope(precisions.resolve(pipeline.train_config, precision)))
        for index, folder in enumerate(folders):
            before = done
            counts[str(folder)] = _predict_reader(
                detector,
                pipeline,
                index,
                folder,
                limit or pipeline.eval_config.eval_samples,
                lambda images, before=before: progress(before + images, None),
            )
            done += counts[str(folder)][0]
    return counts


def _predict_reader(
    detector: DetectionModel,
    pipeline: TrainEvalPipelineConfig,
    index: int,
    folder: pathlib.Path,
    limit: int,
    progress: Callable[[int], None],
) -> tuple[int, int]:
    reader = pipeline.eval_input_reader[index]
    where = f'eval_input_reader[{index}]'
    left_out = examples_builder.left_out(reader, where, folder / bad_records.FILE_NAME)
    dataset = dataset_builder.build_eval(pipeline, index, left_out=left_out)
    spec = dataset.element_spec
    predict = make_predict(
        detector,
        spec,
        with_losses=False,
        jit_compile=execution.compiles_inference(
            pipeline.train_config, spec, examples_builder.bucket_sizes(reader)
        ),
        batch_size=pipeline.eval_config.batch_size,
    )
    method = pipeline.eval_config.MaskPasteMethod.Name(pipeline.eval_config.mask_paste_method)
    with (
        corrupt_files.named(reader, where),
        json_lists.ResultsFile(folder / json_lists.DETECTIONS) as found,
        json_lists.ResultsFile(folder / json_lists.IMAGES) as images,
    ):
        for batch in dataset:
            detections, _ = predict(batch)
            left = limit - images.count if limit else None
            for entry, of_image in _entries(batch, detections, PasteMethod[method], left):
                found.add(of_image)
                images.add([entry])
            progress(images.count)
            if limit and images.count >= limit:
                break
        left_out.log_objects()
        if not images.count:
            left_out.check_any_is_usable()
    return images.count, found.count


def _entries(
    batch: Mapping[str, Any], detections: Mapping[str, Any], method: PasteMethod, limit: int | None
) -> list[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """Yields for each image its entry of `images.json` and its entries of the results file."""
    shapes = np.asarray(batch[InputFields.ORIGINAL_IMAGE_SPATIAL_SHAPE])
    ids = [coco_image_id(source_id) for source_id in batch[InputFields.SOURCE_ID].numpy()]
    found = Detections.from_batch(detections, shapes)
    return [
        (
            {'id': image_id, 'height': int(height), 'width': int(width)},
            coco_results(of_image, image_id, method=method),
        )
        for image_id, of_image, (height, width) in list(zip(ids, found, shapes, strict=True))[
            :limit
        ]
    ]
