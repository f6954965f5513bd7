"""Exports: what `tfod export` does."""

import contextlib
import logging
import os
import pathlib
import shlex
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from object_detection.config.job_options import PRECISIONS
from object_detection.errors import OptionsError
from object_detection.system import console, tensorflow_setup
from object_detection.tasks.options import (
    PathLike,
    check_checkpoint_dir,
    check_choice,
    check_positive,
)

if TYPE_CHECKING:
    from object_detection.export.exporter import WrittenFile
    from object_detection.export.verification import Comparison

_logger = logging.getLogger(__name__)


class SavedModelExport(NamedTuple):
    """A SavedModel that `export` has written.

    Attributes:
      format_name: 'saved_model'.
      path: its folder.
      precision: the precision in which it computes.
      comparison: the comparison with the model in process; None without images.
    """

    format_name: str
    path: pathlib.Path
    precision: str
    comparison: 'Comparison | None'


def export(
    config: PathLike,
    checkpoint_dir: PathLike,
    output: PathLike,
    *,
    format: str | Sequence[str] = 'saved_model',
    input_type: str = 'image_tensor',
    batch_size: int | None = None,
    triton_backend: str | None = None,
    quantization: str | None = None,
    calibration: PathLike = '',
    calibration_limit: int | None = None,
    precision: str | None = None,
    constant_weights: bool = False,
    label_map: PathLike = '',
    config_override: str = '',
    set: str | Sequence[str] = (),
    verify: PathLike = '',
    verify_limit: int = 20,
    say: Callable[[str], None] = _logger.info,
    show_progress: Callable[[str], Any] = lambda what: contextlib.nullcontext(lambda *_: None),
) -> 'list[WrittenFile | SavedModelExport]':
    """Writes a model that runs without its checkpoint, as `tfod export` does.

    Args:
      config: path of the pipeline config that the checkpoint was trained with.
      checkpoint_dir: folder of checkpoints, of which the newest is taken, or a prefix.
      output: folder to write; an earlier export is replaced.
      format: names of formats, such as 'onnx'; several in a list, or separated by commas.
      input_type: what the SavedModel takes, one of `input_types.INPUT_TYPES`.
      batch_size: images a call, of formats that fix it (stablehlo), or the most of them (triton);
        None is 1.
      triton_backend: model of a Triton repository; None takes the first of `TRITON_BACKENDS`.
      quantization: numbers of a TFLite file, such as 'int8'; None is 'float32'.
      calibration: image, folder or pattern of images like those of the use, for 'int8'.
      calibration_limit: most images to calibrate on; None is 200.
      precision: what it computes in; None takes the config's.
      constant_weights: whether the SavedModel holds the weights as constants.
      label_map: class names; '' takes the config's label map.
      config_override: text proto, or a file of one, merged into the config.
      set: fields of the config to change, such as 'model.ssd.num_classes=3'.
      verify: image, folder or pattern to compare export and model on; '' compares nothing.
      verify_limit: most images to compare on.
      say: is called with a line about each thing that was done.
      show_progress: makes a context, whose value is called with numbers of images.

    Returns:
      Each file, and the SavedModel last, with its `format_name`, `path` and `comparison`.

    Raises:
      OptionsError: if options contradict each other.
      UserError: if one cannot be used, or the config or the checkpoint; or if the detections of an
        export are not those of the model, which leaves an earlier export as it is.
    """
    from object_detection.export.formats.formats import (
        QUANTIZATIONS,
        SAVED_MODEL,
        TRITON_BACKENDS,
        parse_names,
    )

    names = parse_names((format,) if isinstance(format, str) else tuple(format))
    check_choice('--precision', precision or PRECISIONS[0], PRECISIONS)
    check_positive(verify_limit=verify_limit)
    _check_saved_model_options(names, input_type, verify, constant_weights=constant_weights)
    _check_format_options(
        names,
        batch_size=batch_size,
        triton_backend=triton_backend,
        quantization=quantization,
        calibration=calibration or None,
        calibration_limit=calibration_limit,
    )
    images = _images(verify, '--verify')[:verify_limit]
    samples = _spread(_images(calibration, '--calibration'), calibration_limit or 200)
    checkpoint_dir = os.fspath(checkpoint_dir)
    check_checkpoint_dir(checkpoint_dir)
    pipeline = _read_pipeline(config, config_override, set)
    tensorflow_setup.import_tensorflow()
    from object_detection.export import exporter, saved_model
    from object_detection.export.formats.source import FormatOptions
    from object_detection.weights import checkpoints

    # Found only once: a running training may save another checkpoint before the comparison.
    checkpoint = checkpoints.find(checkpoint_dir)
    say(f'exporting {exporter.describe(checkpoint_dir, checkpoint)}')
    label_map_path = os.fspath(label_map) or None
    shared = {'precision': precision, 'label_map_path': label_map_path, 'images': images}
    shared['config_path'] = os.fspath(config)
    if SAVED_MODEL in names:
        saved_model.refuse_training_folder(output)
    if samples:
        say(f'calibrating on {len(samples)} images')
    made: list[Any] = []
    # The other formats are first: they may refuse a model, before anything is written.
    if others := [name for name in names if name != SAVED_MODEL]:
        options = FormatOptions(
            batch_size=batch_size or 1,
            quantization=quantization or QUANTIZATIONS[0],
            calibration=tuple(samples),
            triton_backend=triton_backend or TRITON_BACKENDS[0],
        )
        with console.phase(f'converting to {", ".join(others)}'):
            made += exporter.export_files(
                pipeline, checkpoint, output, others, options=options, **shared
            )
        _say_files(made, output, len(images), say)
    if SAVED_MODEL in names:
        shared |= {'input_type': input_type, 'constant_weights': constant_weights}
        with show_progress('exporting and comparing') as report:
            exported = exporter.export(pipeline, checkpoint, output, progress=report, **shared)
        path = pathlib.Path(output) / SAVED_MODEL
        made.append(SavedModelExport(SAVED_MODEL, path, *exported))
        _say_saved_model(made[-1], input_type, len(images), say)
    return made


def _read_pipeline(config: PathLike, overrides: str, settings: str | Sequence[str]) -> Any:
    """Returns the config with its changes, which is checked for an export."""
    from object_detection.config.reader import read_pipeline
    from object_detection.validation.validate import validate

    settings = (settings,) if isinstance(settings, str) else tuple(settings)
    pipeline = read_pipeline(config, overrides_text=overrides, settings=settings)
    validate(pipeline, for_what='export')
    return pipeline


def _say_files(
    made: 'Sequence[WrittenFile]', output: PathLike, num_images: int, say: Callable[[str], None]
) -> None:
    for each in made:
        say(f'exported to {each.path} ({each.format_name}, {each.megabytes:.1f} MB)')
        if num_images:
            say(f'{num_images} images: {each.comparison}')
        if each.format_name == 'triton':
            say(f'serve it: {_triton_line(output)}')


def _say_saved_model(
    made: SavedModelExport, input_type: str, num_images: int, say: Callable[[str], None]
) -> None:
    say(f'exported to {made.path} ({input_type}, computes in {made.precision})')
    if num_images:
        say(f'{num_images} images: {made.comparison}')
    folder = shlex.quote(os.fspath(made.path.parent))
    say(f'serve it: tfod serve {folder}, or {_serving_line(made.path)}')


def _serving_line(path: pathlib.Path) -> str:
    """Returns the command that serves a SavedModel by TensorFlow Serving."""
    folder = shlex.quote(f'{path.resolve()}:/models/detector/1')
    return f'docker run -p 8501:8501 -v {folder} -e MODEL_NAME=detector tensorflow/serving'


def _triton_line(output: PathLike) -> str:
    """Returns the command that serves the model repository; the user chooses the release."""
    folder = shlex.quote(f'{pathlib.Path(output, "triton").resolve()}:/models')
    server = 'nvcr.io/nvidia/tritonserver:RELEASE-py3 tritonserver --model-repository /models'
    return f'docker run --gpus all -p 8000:8000 -v {folder} {server}'


def _images(path: PathLike, flag: str) -> list[pathlib.Path]:
    from object_detection.prediction.sources import find_images

    return find_images((os.fspath(path),), readable=True, flag=flag) if path else []


def _spread(paths: list[pathlib.Path], limit: int) -> list[pathlib.Path]:
    """Returns `limit` paths evenly spread over all, as neighbours are often alike."""
    step = max(1, len(paths) / limit)
    return [paths[int(index * step)] for index in range(min(limit, len(paths)))]


def _check_format_options(names: list[str], **options: Any) -> None:
    """Refuses options of formats with wrong values, and those that none of the formats reads."""
    from object_detection.export.formats.formats import (
        EXPORT_FORMATS,
        QUANTIZATIONS,
        TRITON_BACKENDS,
    )

    for name, choices in (('quantization', QUANTIZATIONS), ('triton_backend', TRITON_BACKENDS)):
        check_choice(f'--{name}', options[name] or choices[0], choices)
    check_positive(**{name: options[name] for name in ('batch_size', 'calibration_limit')})
    for name, value in options.items():
        option = name.removesuffix('_limit')
        readers = [each for each, row in EXPORT_FORMATS.items() if option in row.options]
        if value is not None and not {*readers} & {*names}:
            raise OptionsError(
                f'--{name}: expected with --format {" or ".join(readers)} alone. '
                f'Received: --format {",".join(names)}.'
            )


def _check_saved_model_options(
    names: list[str], input_type: str, verify: PathLike, *, constant_weights: bool
) -> None:
    from object_detection.export.formats.formats import SAVED_MODEL
    from object_detection.runtime.input_types import IMAGE_AND_BOXES_TENSOR, INPUT_TYPES

    check_choice('--input_type', input_type, INPUT_TYPES)
    if verify and input_type == IMAGE_AND_BOXES_TENSOR:
        raise OptionsError(f'--verify: not with --input_type {input_type}, which needs boxes.')
    if SAVED_MODEL not in names and constant_weights:
        raise OptionsError(
            f'--constant_weights: for --format {SAVED_MODEL} alone. '
            f'Received: --format {",".join(names)}.'
        )
    if SAVED_MODEL not in names and input_type != INPUT_TYPES[0]:
        raise OptionsError(
            f'--input_type: for --format {SAVED_MODEL} alone; the other formats take images. '
            f'Received: {input_type} with --format {",".join(names)}.'
        )
