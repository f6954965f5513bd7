"""Writes pictures of what each augmentation step of a config does to a training image.

Writes pictures of the input that a model is trained or evaluated on.
"""

import contextlib
import functools
import math
import os
import pathlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from PIL import Image

from object_detection.builders import dataset_builder, evaluator_builder, preprocessor_builder
from object_detection.builders.input_readers import batches, channels, corrupt_files, tf_records
from object_detection.builders.input_readers import examples as examples_builder
from object_detection.builders.input_readers import rules as reader_rules
from object_detection.config import plugins
from object_detection.core.fields import InputFields
from object_detection.core.fields import InputFields as F
from object_detection.data import sequence_examples
from object_detection.data.augmentation import choice
from object_detection.data.objects import Example
from object_detection.data.pipeline.transform import ExampleTransform
from object_detection.errors import ConfigError, UserError, raise_if_any
from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig
from object_detection.protos.preprocessor_pb2 import PreprocessingStep
from object_detection.validation import augmentation as augmentation_rules
from object_detection.visualization import drawing, tensorboard

SHEET_NAME = 'contact_sheet.png'
CHAIN_NAME = 'all_in_order'
_WHERE = 'train_input_reader'
# Longer side of the largest image of a row, pixels: in the picture of a row, and on the sheet.
_CELL, _SHEET_CELL = 480, 240


class Row(NamedTuple):
    """Steps that are drawn together.

    Attributes:
      name: name of the picture, without its suffix.
      title: text above the pictures.
      steps: the steps, applied in order.
    """

    name: str
    title: str
    steps: tuple[PreprocessingStep, ...]


class Written(NamedTuple):
    """What `write` has drawn.

    Attributes:
      pictures: paths of the pictures, without the contact sheet.
      left_out: name of each step that cannot be applied to the data -> reason.
    """

    pictures: list[pathlib.Path]
    left_out: dict[str, str]


def write(
    pipeline: TrainEvalPipelineConfig,
    output_directory: str | os.PathLike,
    *,
    image: int = 0,
    draws: int = 4,
    seed: int = 0,
    all_steps: bool = False,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Written:
    """Draws a training image, and what each step alone and all steps in order make of it.

    Args:
      pipeline: the whole config, validated.
      output_directory: the folder, created if needed, of PNG files `NUMBER_STEP.png` and of
        `contact_sheet.png`, which has a row for each of them.
      image: number of the training image, from 0 on, in the order of the files. Steps over several
        images take the next ones as partners, and the first ones after the last.
      draws: number of results of each step, with different seeds.
      seed: seed of the first result.
      all_steps: whether to draw all steps that there are in place of those of the config. A step
        that the config has is drawn with its fields there, another one with those of
        `sample_steps`; one that does not fit the data is left out.
      progress: called with the number of rows done and of all.

    Raises:
      UserError: if the config has no steps, there is no such image, or a step of the config cannot
        be applied.
    """
    configs = pipeline.train_config.data_augmentation_options
    rows = list(all_rows(configs) if all_steps else config_rows(configs))
    if not rows:
        raise ConfigError(
            'train_config.data_augmentation_options: expected at least one step to draw, or '
            '--all_steps. Received: none.'
        )
    left_out: dict[str, str] = {}

    @contextlib.contextmanager
    def noted(row: Row) -> Iterator[None]:
        try:
            yield
        except UserError as error:
            if not all_steps:
                raise
            left_out[row.name] = str(error)

    built = []
    for row in rows:
        with noted(row):
            built.append((row, _transform(pipeline, row.steps)))
    num_images = 1 + max(_num_partners(transform) for _, transform in built)
    draw = _drawing(pipeline)
    output = pathlib.Path(output_directory)
    output.mkdir(parents=True, exist_ok=True)
    written, sheet = [], []
    # The results do not depend on the device, and would fill the memory of a GPU.
    with tf.device('CPU:0'):
        plain = _transform(pipeline, ())
        decoded = decode(pipeline, plain, image, num_images)
        original = apply(plain, decoded, seed)
        for number, (row, transform) in enumerate(built):
            progress(number, len(built))
            with noted(row):
                seeds = range(seed, seed + draws)
                results = {f'seed {each}': apply(transform, decoded, each) for each in seeds}
                examples = {'original': original, **results}
                path = output / f'{row.name}.png'
                Image.fromarray(picture(row.title, examples, draw, _CELL)).save(path)
                written.append(path)
                sheet.append(picture(row.title, examples, draw, _SHEET_CELL))
    Image.fromarray(drawing.stacked(sheet)).save(output / SHEET_NAME)
    return Written(written, left_out)


def config_rows(configs: Sequence[PreprocessingStep]) -> Iterator[Row]:
    """Yields a row for each step of a config alone, and one for all of them."""
    for index, config in enumerate(configs):
        yield from _step_rows(config, f'{index:02d}', f'[{index}]', '')
    if configs:
        yield Row(CHAIN_NAME, 'all steps in order', tuple(configs))


def all_rows(configs: Sequence[PreprocessingStep]) -> Iterator[Row]:
    """Yields a row for each step that there is, with the fields that `configs` has for it."""
    given = {config.WhichOneof('preprocessing_step'): config for config in reversed(configs)}
    for kind in preprocessor_builder.kinds():
        notes = 'as in the config' if kind in given else ''
        name, title, steps = next(
            _step_rows(
                given.get(kind) or preprocessor_builder.build_sample_steps(kind), '', '', notes
            )
        )
        yield Row(name.removeprefix('_'), title.strip(), steps)


def _step_rows(config: PreprocessingStep, number: str, path: str, note: str) -> Iterator[Row]:
    """Yields a row of a step, as if its probability were 1, and those of the steps in `one_of`."""
    kind = config.WhichOneof('preprocessing_step')
    notes = [note] if note else []
    if config.probability != 1:
        notes.append(f'probability {config.probability:g}, drawn as if it were 1')
    if kind == plugins.FIELD:
        notes.append(config.plugin.name)
    if config.stop_after_step:
        notes.append(f'ends after training step {config.stop_after_step}')
    alone = PreprocessingStep()
    alone.CopyFrom(config)
    alone.ClearField('probability')
    title = f'{path} {kind}' + (f' ({"; ".join(notes)})' if notes else '')
    yield Row(f'{number}_{kind}', title, (alone,))
    if kind == 'one_of':
        weights = list(config.one_of.weights) or [1.0] * len(config.one_of.steps)
        for index, inner in enumerate(config.one_of.steps):
            share = weights[index] / sum(weights)
            yield from _step_rows(
                inner,
                f'{number}_{index}',
                f'{path} one_of.steps[{index}]',
                f'drawn for {share:.0%} of the images',
            )


def _transform(
    pipeline: TrainEvalPipelineConfig, steps: Sequence[PreprocessingStep]
) -> ExampleTransform:
    """Builds the transform of a config that has `steps` in place of its own.

    Raises:
      UserError: if a step is misconfigured, or does not fit the data of the reader.
    """
    changed = TrainEvalPipelineConfig()
    changed.CopyFrom(pipeline)
    del changed.train_config.data_augmentation_options[:]
    changed.train_config.data_augmentation_options.extend(steps)
    raise_if_any(augmentation_rules.check(changed))
    raise_if_any(channels.check(changed, changed.train_input_reader, _WHERE))
    return dataset_builder.train_transform(changed)


def _num_partners(transform: ExampleTransform) -> int:
    return sum(map(choice.num_partners, transform.augmentations))


def apply(transform: ExampleTransform, decoded: Sequence[Example], seed: int) -> Example:
    """Applies the steps of a transform, and neither its resizer nor its padding, to an example.

    Args:
      transform: has the steps.
      decoded: the example, and those that follow it in the data; a step with partners takes what
        the steps before it make of these, as in training.
      seed: seed of all random choices.

    Returns:
      What `ExampleTransform.prepare` returns, augmented.
    """
    decoded = decoded[: 1 + _num_partners(transform)]
    seeds = [tf.constant([position, seed], tf.int64) for position in range(len(decoded))]
    examples = list(map(transform.prepare, decoded, seeds))
    for index, step in enumerate(transform.augmentations):
        count = choice.num_partners(step)
        examples = [
            choice.apply(
                step,
                examples[i],
                tf.random.fold_in(seeds[i], index),
                examples[i + 1 : i + 1 + count],
            )
            for i in range(len(examples) - count)
        ]
    return examples[0]


def picture(
    title: str, examples: Mapping[str, Example], draw: Callable[..., np.ndarray], cell: int
) -> np.ndarray:
    """Draws examples, by their captions, side by side, in one scale: uint8 [H, W, 3].

    `draw` is `example_pictures.draw` with names.
    """
    shapes = [example[F.IMAGE].shape for example in examples.values()]
    scale = cell / max(max(shape[:2]) for shape in shapes)
    return drawing.row(
        [draw(example, scale=scale) for example in examples.values()],
        cell,
        title=title,
        captions=[
            f'{caption}, {width} x {height}'
            for caption, (height, width, _) in zip(examples, shapes, strict=True)
        ],
    )


def _drawing(pipeline: TrainEvalPipelineConfig) -> Callable[..., np.ndarray]:
    """Returns `example_pictures.draw` with the names of classes, and lines between keypoints."""
    reader = pipeline.train_input_reader
    categories = evaluator_builder.categories(reader, pipeline.model)
    return functools.partial(
        drawing.draw,
        names={category['id']: category['name'] for category in categories},
        keypoint_edges=evaluator_builder.keypoint_edges(
            pipeline.eval_config, reader.label_map_path
        ),
    )


def decode(
    pipeline: TrainEvalPipelineConfig, transform: ExampleTransform, image: int, count: int
) -> list[Example]:
    """Decodes `count` training images from number `image` on, and from the first on at the end.

    Images that a training would skip are skipped here too.
    """
    reader = pipeline.train_input_reader
    if reader.HasField('synthetic_input_reader'):
        raise ConfigError(f'{_WHERE}: expected files. Received: synthetic_input_reader.')
    records = tf_records.read(
        reader,
        _WHERE,
        shuffle=False,
        num_epochs=1,
        seed=0,
        empty=examples_builder.empty_image_filter(reader, _WHERE),
    )
    if reader_rules.holds_sequences(reader):
        records = sequence_examples.one_frame(records, reader.frame_index, 0)
    decoder = examples_builder.decoder(reader, transform.resizer.value_range)

    def load(cursors: tf.Tensor, serialized: tf.Tensor) -> Example:
        decoded = decoder(serialized)
        # It fails for what cannot be used, such as masks of another size.
        usable = transform.prepare(decoded, cursors[:, 0])
        with tf.control_dependencies(list(usable.values())):
            return {name: tf.identity(value) for name, value in decoded.items()}

    with corrupt_files.named(reader, _WHERE):
        examples = batches.skip_bad(records, load, examples_builder.left_out(reader, _WHERE))
        found = list(examples.skip(image).take(count))
        if not found:
            total = sum(1 for _ in examples)
            raise UserError(
                f'--image: expected a number below {total}, the number of images of {_WHERE}. '
                f'Received: {image}.'
            )
        while len(found) < count:
            found += examples.take(count - len(found))
    return found


_MAX_LETTERS = 60
# Longest side of a picture on the contact sheet, and the space around it, in pixels.
_INPUT_CELL, _GAP = 360, 8


def write_inputs(
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
            image.thumbnail((_INPUT_CELL, _INPUT_CELL))
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
