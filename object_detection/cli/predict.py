"""`tfod predict`: writes what a model finds in images, videos or records."""

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

import click

from object_detection.cli.common import option_flags, progress
from object_detection.errors import UserError, expected
from object_detection.prediction import tracking
from object_detection.prediction.sources import find_images, is_live
from object_detection.prediction.writers import DEFAULT, DEFAULT_OF_TRACKS, MOT, WRITERS
from object_detection.system import tensorflow_setup

_BEST = 'best'
# The options that are not about pictures.
_RECORD_OPTIONS = {'model', 'config', 'checkpoint_dir', 'output', 'limit', 'json', 'quiet'}


class _Threshold(click.ParamType):
    name = 'NUMBER|best'

    def convert(self, value: Any, param: Any, ctx: Any) -> float | str:
        return value if value == _BEST else click.FLOAT.convert(value, param, ctx)


@option_flags.json_option
@click.command(name='predict')
@click.option(
    '--model',
    default='',
    help='Output or file of `tfod export`, a SavedModel, a model_dir or an unpacked archive.',
)
@option_flags.config_option('Pipeline config; in place of --model.', required=False)
@click.option(
    '--checkpoint_dir',
    default='',
    help='Folder of checkpoints (the newest), or a prefix; in place of --model.',
)
@click.option(
    '--input',
    'inputs',
    multiple=True,
    help='Image, video, folder or quoted pattern, camera:0 or the URL of a stream; repeatable. '
    'Without it, with --config, the data of each eval_input_reader.',
)
@click.option(
    '--output',
    required=True,
    metavar='FOLDER',
    help='Folder for pictures and other files; not that of the images.',
)
@click.option(
    '--output_format',
    'formats',
    multiple=True,
    metavar='NAMES',
    help=f'Some of {", ".join(WRITERS)}, separated by commas; repeatable.  '
    f'[default: {",".join(DEFAULT)}]',
)
@click.option('--label_map', default='', help="Label map; the model's own names if not given.")
@click.option(
    '--score_threshold',
    '--min_score',
    'min_score',
    type=_Threshold(),
    default=0.5,
    show_default=True,
    help='Lowest score that is drawn or written; best is that of the greatest F1 in the evaluation '
    'of the model. detections.json has every score.',
)
@click.option('--classes', default='', help='Names or ids of classes, separated by commas.')
@click.option(
    '--max_boxes', default=100, show_default=True, help='Most objects drawn in a picture.'
)
@click.option(
    '--limit',
    type=click.IntRange(min=0),
    default=0,
    help='Stop after so many images and frames (of each reader); 0 = all.',
)
@click.option(
    '--batch_size',
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help='Images, of one size, that the model runs on at a time.',
)
@click.option('--tile', type=int, help='Look at large images in tiles of so many pixels, too.')
@click.option(
    '--tile_overlap',
    type=float,
    default=0.2,
    show_default=True,
    help='Least share of a tile that its neighbour shows.',
)
@click.option('--tta', default='', help='Look at flips and scales, too: flip,0.8,1.25')
@click.option(
    '--tta_merge',
    default='wbf',
    show_default=True,
    help='How they are merged: wbf (weighted boxes fusion) or nms.',
)
@click.option(
    '--track',
    is_flag=True,
    help='Number the objects of videos, or of the frames in each folder, and follow them.',
)
@click.option(
    '--memory',
    default='',
    metavar='FILE',
    help='Memory of the camera of all images, for a model with a context_config; it is made, and '
    'grows with the images, which are looked at in order of time.',
)
@click.option(
    '--embedding_model',
    default='',
    metavar='PATH',
    help='Model whose features are remembered: that of `tfod context embeddings`; with --memory.',
)
@click.option(
    '--embedding_count',
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help='Objects that are remembered of an image; with --memory.',
)
@click.option('--bf16', 'precision', flag_value='bfloat16', help='Compute in bfloat16.')
@click.option('--fp16', 'precision', flag_value='float16', help='Compute in float16.')
def command(
    model: str,
    config: str | None,
    checkpoint_dir: str,
    inputs: tuple[str, ...],
    output: str,
    limit: int,
    **options: Any,
) -> None:
    """Detects objects in images and videos.

    Writes one annotated picture an image, an annotated video NAME.mp4 a video, and detections.json,
    a COCO results file with every detection of any score (boxes in pixels of the image as [x, y,
    width, height], masks as RLE); or what --output_format names. A file's image id is its name if
    that is a number, else the lowest number that no file has; images.json has for each image its
    id, file and picture. Pictures are called NAME.png, and NAME_2.png and so on where several
    images have that name. A command that is stopped leaves what it has in detections.json.partial;
    a camera or stream is read until --limit or Ctrl-C, which ends it in order.

    With --config and --checkpoint_dir and without --input, the images are those of each
    eval_input_reader of the config: detections.json then has their source ids, and no pictures are
    drawn. Several readers have a folder each, by their names.
    """
    _check_choice(model, config, checkpoint_dir, inputs)
    if not inputs:
        _check_draws_nothing()
    _check_companions(options)
    options['formats'] = _parse_formats(options['formats'], track=options['track'])
    if options['track']:
        tracking.check_packages('--track')
    paths = find_sources(inputs) if inputs else []
    if config:
        # Checked first, so that mistakes are reported before TensorFlow is loaded, which takes
        # seconds.
        _read_config(config, reads_records=not inputs)
    tensorflow_setup.keep_freed_memory()
    tensorflow_setup.assume_constant_weights()
    tensorflow_setup.import_tensorflow(keras_pictures=False)
    if not inputs:
        _predict_records(config, checkpoint_dir, output, limit)
        return
    source = {'path': model or checkpoint_dir, **({'config': config} if config else {})}
    _predict_sources(source, paths, output, limit, options)


def _predict_sources(
    source: dict[str, str], paths: list[str], output: str, limit: int, options: dict[str, Any]
) -> None:
    from object_detection.prediction.files import OutputOptions, predict_files
    from object_detection.system import disk

    with (
        progress.show('predicting') as report,
        disk.full_disk_named(output),
        _stopped_in_order(paths) as should_stop,
        contextlib.ExitStack() as stack,
    ):
        predictor = _predictor(source, options)
        least = options['min_score']
        least = predictor.score_threshold if least == _BEST else least
        memory = stack.enter_context(_memory(predictor, options)) if options['memory'] else None
        summary = predict_files(
            predictor,
            paths,
            output,
            OutputOptions(
                formats=options['formats'],
                score_threshold=least,
                max_boxes=options['max_boxes'],
                limit=limit,
                should_stop=should_stop,
                track=options['track'],
            ),
            memory=memory,
            progress=report,
        )
    computed = f', computed in {summary.precision}' if summary.precision else ''
    which = 'tracked' if options['track'] else f'with a score >= {least:g}'
    text = (
        f'{summary.images} images, {summary.detections} detections '
        f'({summary.drawn} {which}) in {output}{computed}'
    )
    text += _advice(predictor.advised_threshold, least)
    option_flags.show_result({'output': output, **summary._asdict()}, [text])
    for problem in summary.problems:
        click.echo(f'left out: {problem}', err=True)
    if not summary.images:
        click.echo('Error: none of the inputs is an image that can be read.', err=True)
        sys.exit(1)


def _advice(advised: float | None, least: float) -> str:
    """Returns the model's own threshold for the last line, where the user has chosen none."""
    chosen = click.get_current_context().get_parameter_source('min_score')
    if advised in (None, least) or chosen is not click.core.ParameterSource.DEFAULT:
        return ''
    return f'; --score_threshold {_BEST} is {advised:g}, the greatest F1 in the evaluation'


def _predictor(source: dict[str, str], options: dict[str, Any]) -> Any:
    from object_detection.prediction.predictor import Predictor
    from object_detection.prediction.views import Augmentation, Tiling

    size, tta = options['tile'], options['tta']
    classes = [name.strip() for name in options['classes'].split(',') if name.strip()]
    # Checked before the model is loaded.
    tiling = None if size is None else Tiling(size, options['tile_overlap'])
    augmentation = Augmentation.parse(tta, options['tta_merge']) if tta else None
    return Predictor(
        **source,
        label_map=options['label_map'] or None,
        **({'score_threshold': _BEST} if options['min_score'] == _BEST else {}),
        classes=classes or None,
        precision=options['precision'],
        batch_size=options['batch_size'],
        tiling=tiling,
        augmentation=augmentation,
    )


def _memory(predictor: Any, options: dict[str, Any]) -> Any:
    from object_detection.prediction import loading, memory

    max_features, length = memory.limits(predictor.detector)
    embedder = loading.load(options['embedding_model'], precision=options['precision'])
    if embedder.value_range != predictor.value_range:
        raise UserError(
            '--embedding_model: expected a model with the image_resizer.value_range of the other '
            f'one, {predictor.value_range}. Received: {embedder.value_range}.'
        )
    return memory.Memory(
        options['memory'],
        embedder,
        length=length,
        max_features=max_features,
        count=options['embedding_count'],
    )


@contextlib.contextmanager
def _stopped_in_order(paths: list[str]) -> Iterator[Callable[[], bool]]:
    """Yields whether a signal has ended the reading of cameras, which have no end of their own."""
    if not any(is_live(path) for path in paths):
        yield lambda: False
        return
    from object_detection.system.signals import Interrupts

    with Interrupts() as interrupts:
        yield lambda: interrupts.received is not None


def _check_companions(options: dict[str, Any]) -> None:
    """Refuses options that would have no effect without another."""
    context = click.get_current_context()
    for name, needed in (
        ('tile_overlap', 'tile'),
        ('tta_merge', 'tta'),
        ('embedding_model', 'memory'),
        ('embedding_count', 'memory'),
    ):
        is_given = context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE
        if is_given and not options[needed]:
            raise click.UsageError(f'--{name} is for --{needed}. Received: no --{needed}.')
    if not options['memory']:
        return
    if not options['embedding_model']:
        raise click.UsageError('--memory: expected --embedding_model with it.')
    for name in ('tile', 'tta'):
        if options[name]:
            raise click.UsageError(f'--memory: expected whole images. Received: --{name}.')


def _parse_formats(values: tuple[str, ...], *, track: bool) -> list[str]:
    names = [name.strip() for value in values for name in value.split(',')]
    for name in names:
        if name not in WRITERS:
            raise expected('--output_format', f'some of {", ".join(WRITERS)}', repr(name))
    if MOT in names and not track:
        raise click.UsageError(f'--output_format {MOT} is for --track. Received: no --track.')
    return names or list(DEFAULT_OF_TRACKS if track else DEFAULT)


def _check_choice(
    model: str, config: str | None, checkpoint_dir: str, inputs: tuple[str, ...]
) -> None:
    if bool(model) == bool(config or checkpoint_dir):
        raise click.UsageError(
            'Expected either --model, or --config with --checkpoint_dir. Received: '
            f'{"both" if model else "neither"}.'
        )
    if not model and not (config and checkpoint_dir):
        missing = '--checkpoint_dir' if config else '--config'
        raise click.UsageError(f'Expected --config with --checkpoint_dir; {missing} is missing.')
    if model and not inputs:
        raise click.UsageError("Missing option '--input': images for the --model.")


def _check_draws_nothing() -> None:
    """Refuses options for pictures, since no pictures of records are drawn."""
    context = click.get_current_context()
    for parameter in context.command.params:
        if parameter.name in _RECORD_OPTIONS:
            continue
        source = context.get_parameter_source(parameter.name)
        if source is click.core.ParameterSource.COMMANDLINE:
            flags = (
                ' or '.join(flag for flag in parameter.opts if flag in sys.argv)
                or (parameter.opts[-1])
            )
            raise click.UsageError(
                f'{flags} is about pictures, which are drawn of --input alone. Received: no '
                '--input, whose place the records of --config take.'
            )


def _read_config(config: str, *, reads_records: bool):
    from object_detection.config.reader import read_pipeline
    from object_detection.validation.validate import validate

    pipeline = read_pipeline(config)
    validate(pipeline, for_what='eval' if reads_records else 'export')
    return pipeline


def _predict_records(config: str, checkpoint_dir: str, output: str, limit: int) -> None:
    pipeline = _read_config(config, reads_records=True)
    from object_detection.prediction.predict_records import predict_records
    from object_detection.system import disk

    with progress.show('predicting') as report, disk.full_disk_named(output):
        counts = predict_records(pipeline, checkpoint_dir, output, limit=limit, progress=report)
    for folder, (images, detections) in counts.items():
        option_flags.show_result(
            {'output': folder, 'images': images, 'detections': detections},
            [f'{images} images, {detections} detections in {folder}'],
        )


def find_sources(inputs: tuple[str, ...]) -> list[str]:
    """Lists images and videos as `find_images` does, and cameras and streams, each once.

    Raises:
      UserError: as `find_images`.
    """
    found: list[str] = []
    for text in inputs:
        found += [text] if is_live(text) else map(str, find_images((text,), videos=True))
    unique: dict[str, str] = {}
    for each in found:
        unique.setdefault(each if is_live(each) else os.path.abspath(each), each)
    if repeated := len(found) - len(unique):
        click.echo(f'{repeated} inputs are named more than once, and are read once', err=True)
    return list(unique.values())
