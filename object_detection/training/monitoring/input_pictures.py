"""Writes pictures of the input that a model is trained or evaluated on."""

import math
import os
import pathlib
import re
from collections.abc import Callable, Sequence

import numpy as np
from PIL import Image

from object_detection.builders import dataset_builder, evaluator_builder
from object_detection.builders.input_readers import corrupt_files
from object_detection.core.fields import InputFields
from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig
from object_detection.visualization import tensorboard

SHEET_NAME = 'contact_sheet.png'
_MAX_LETTERS = 60
# Longest side of a picture on the contact sheet, and the space around it, in pixels.
_CELL, _GAP = 360, 8


def write(
    pipeline: TrainEvalPipelineConfig,
    output_directory: str | os.PathLike,
    *,
    count: int,
    seed: int = 0,
    eval_reader: int | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[pathlib.Path]:
    """Draws images as the model sees them (augmented, resized) with boxes, masks and class names.

    Args:
      pipeline: the whole config, validated.
      output_directory: the folder, created if needed, of PNG files `NUMBER_SOURCEID.png` and of
        `contact_sheet.png`, which shows all of them.
      count: number of pictures; fewer if the data set has fewer images.
      seed: the seed of the order and the augmentations of training images.
      eval_reader: index of the `eval_input_reader` to draw in place of the training data.
      progress: called with the number of pictures done and of all.

    Returns:
      The paths of the pictures, without the contact sheet.

    Raises:
      UserError: as `dataset_builder.build_train` and `build_eval`; a ConfigError for corrupt
        records.
    """
    if eval_reader is None:
        reader, where = pipeline.train_input_reader, 'train_input_reader'
        dataset = dataset_builder.build_train(pipeline, seed=seed, batch_size=1)
    else:
        dataset = dataset_builder.build_eval(pipeline, eval_reader, batch_size=1)
        reader, where = pipeline.eval_input_reader[eval_reader], f'eval_input_reader[{eval_reader}]'
    categories = evaluator_builder.categories(reader, pipeline.model)
    names = {category['id']: category['name'] for category in categories}
    edges = evaluator_builder.keypoint_edges(pipeline.eval_config, reader.label_map_path)
    output = pathlib.Path(output_directory)
    output.mkdir(parents=True, exist_ok=True)
    written: list[pathlib.Path] = []
    small: list[Image.Image] = []
    with corrupt_files.named(reader, where):
        for tensors in dataset.take(count):
            progress(len(written), count)
            batch = {name: np.asarray(tensor) for name, tensor in tensors.items()}
            (picture,) = tensorboard.input_pictures(batch, names, keypoint_edges=edges)
            source_id = batch.get(InputFields.SOURCE_ID, np.array([b'']))[0]
            path = output / f'{len(written):03d}_{_as_name(source_id)}.png'
            image = Image.fromarray(picture)
            image.save(path)
            written.append(path)
            image.thumbnail((_CELL, _CELL))
            small.append(image)
    if small:
        _contact_sheet(small).save(output / SHEET_NAME)
    return written


def _contact_sheet(pictures: Sequence[Image.Image]) -> Image.Image:
    """Returns pictures of at most `_CELL` pixels a side in rows and columns, about a square."""
    columns = math.ceil(math.sqrt(len(pictures)))
    rows = math.ceil(len(pictures) / columns)
    width = max(picture.width for picture in pictures) + _GAP
    height = max(picture.height for picture in pictures) + _GAP
    sheet = Image.new('RGB', (columns * width + _GAP, rows * height + _GAP), 'white')
    for number, picture in enumerate(pictures):
        row, column = divmod(number, columns)
        sheet.paste(picture, (column * width + _GAP, row * height + _GAP))
    return sheet


def _as_name(source_id: bytes) -> str:
    """Returns a source id, which may be anything, as part of the name of a file."""
    return re.sub(r'[^\w.-]', '_', source_id.decode('utf-8', 'replace'))[:_MAX_LETTERS]
