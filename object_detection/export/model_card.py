"""The model card of exports: what the model detects, how well, and where it comes from.

One file, `model_card.md`, describes all exports of a checkpoint in a folder, of every format.
"""

import datetime
import os
import pathlib
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from google.protobuf import text_format

from object_detection.config import families
from object_detection.dataset_tools.downloads.known_files import WEIGHTS
from object_detection.dataset_tools.downloads.published_detectors import DETECTORS
from object_detection.protos import input_reader_pb2, pipeline_pb2
from object_detection.reporting import run_files
from object_detection.system import cpu, files
from object_detection.visualization.report import metric_name

FILE_NAME = 'model_card.md'
# More begin nowhere: each is the model that the one before began from.
_MAX_ORIGINS = 10
_MAX_BYTES = 1 << 20
_TABLE = '| File | Computes in | Size | Speed on this machine |\n|---|---|---|---|\n'


class Exported(NamedTuple):
    """A file or folder of an export.

    Attributes:
      path: relative to the folder of the card.
      precision: what it computes in, or what its weights were rounded to.
      num_bytes: size of all its files.
      seconds: the times of runs on one image each; empty if none were measured.
    """

    path: str
    precision: str
    num_bytes: int
    seconds: Sequence[float] = ()

    def row(self) -> str:
        size = f'{self.num_bytes / 1e6:.1f} MB'
        return f'| `{self.path}` | {self.precision} | {size} | {self._speed()} |'

    def _speed(self) -> str:
        # The first run prepares the others.
        times = self.seconds[1:] or self.seconds
        if not times:
            return 'not measured; the same export with `--verify IMAGES` writes it here'
        milliseconds = 1000 * statistics.median(times)
        return (
            f'{milliseconds:.1f} ms an image, median of {len(times)}, {cpu.num_cores():g} CPU cores'
        )


class Model(NamedTuple):
    """What a card says of a model.

    Attributes:
      pipeline: the config of the export.
      checkpoint: prefix of the exported checkpoint.
      step: number of its training steps.
      class_names: 1-based id -> name.
      evaluations: reader -> its results, see `results.of_checkpoint`.
    """

    pipeline: pipeline_pb2.TrainEvalPipelineConfig
    checkpoint: str
    step: int
    class_names: Mapping[int, str]
    evaluations: Mapping[str, Mapping[str, Any]]


def write(output: str | os.PathLike, folder: pathlib.Path, model: Model, made: Exported) -> None:
    """Writes the card of a folder of exports.

    Args:
      output: the folder; a card of the same checkpoint there is continued.
      folder: where to write, from where the card is moved to `output`.
      model: the exported model.
      made: what was exported.
    """
    head = _head(model)
    earlier = [
        row for row in _earlier(pathlib.Path(output), head) if f'| `{made.path}` ' not in row
    ]
    config = text_format.MessageToString(model.pipeline, as_utf8=True)
    parts = [
        head,
        f'## Files\n\n{_TABLE}' + '\n'.join([*earlier, made.row()]),
        '## Metrics\n\n' + _metrics(model),
        '## Classes\n\n' + _classes(model),
        '## Data\n\n' + '\n'.join(_data(model.pipeline)),
        '## Weights that the training began from\n\n' + '\n'.join(_origins(config)),
        f'## Config\n\n```\n{config}```',
    ]
    files.write_text(folder / FILE_NAME, '\n\n'.join(parts) + '\n')


def _head(model: Model) -> str:
    """Returns the title and the facts that name the checkpoint."""
    train, options = model.pipeline.train_config, families.options(model.pipeline.model)
    family = families.name(model.pipeline.model)
    extractor = getattr(options, 'feature_extractor', None)
    names = (getattr(extractor, field, '') for field in ('type', 'backbone'))
    resizer = getattr(options, 'image_resizer', None)
    facts = {
        'Model': ', '.join(filter(None, (family, *names))),
        'Images': resizer and f'`{text_format.MessageToString(resizer, as_one_line=True)}`',
        'Checkpoint': f'`{model.checkpoint}`, step {model.step:,}',
        'Training': train.num_steps and f'{train.num_steps:,} steps of {train.batch_size} images',
    }
    lines = [f'- {name}: {value}' for name, value in facts.items() if value]
    return f'# Model card: {family}\n\n' + '\n'.join(lines)


def _earlier(output: pathlib.Path, head: str) -> Iterator[str]:
    """Yields the rows of other exports in a card of the same checkpoint whose files are there."""
    path = output / FILE_NAME
    if not path.is_file() or path.stat().st_size > _MAX_BYTES:
        return
    before, _, rows = path.read_text(encoding='utf-8', errors='replace').partition(_TABLE)
    if not before.startswith(head + '\n'):
        return
    for row in rows.partition('\n\n')[0].splitlines():
        name = row.partition('`')[2].partition('`')[0]
        if name and (output / name).exists():
            yield row


def _metrics(model: Model) -> str:
    if not model.evaluations:
        return (
            f'The folder of the checkpoint has no evaluation of step {model.step:,}. After `tfod '
            'eval`, `tfod export` writes the metrics here.'
        )
    parts = []
    for reader, entry in model.evaluations.items():
        rows = [
            f'| {metric_name(name)} | {value:.4f} |'
            for name, value in entry['metrics'].items()
            if not name.startswith('Loss/') and 'ByCategory' not in name and value >= 0
        ]
        when = datetime.datetime.fromtimestamp(entry['time'], datetime.UTC)
        text = f'Evaluation{f" of `{reader}`" if reader else ""} on {when:%Y-%m-%d}:\n\n'
        text += '\n'.join(['| Metric | Value |', '|---|---|', *rows])
        if advised := entry.get('advised_threshold'):
            text += (
                '\n\nRecommended score threshold: **{score_threshold:.2f}** (precision '
                '{precision:.3f}, recall {recall:.3f}, F1 {f1:.3f} of boxes at IoU 0.5); '
                '`tfod predict --score_threshold best` takes it.'
            ).format(**advised)
            by_class = advised.get('by_class', {}).items()
            if len(by_class) > 1:
                listed = ', '.join(f'{name} {threshold:.2f}' for name, threshold in by_class)
                text += f' Of the classes alone it would be: {listed}.'
        parts.append(text)
    return '\n\n'.join(parts)


def _classes(model: Model) -> str:
    if not model.class_names:
        return f'{families.num_classes(model.pipeline.model)} classes, whose names are not known.'
    return '\n'.join(f'- {number}: {name}' for number, name in sorted(model.class_names.items()))


def _data(pipeline: pipeline_pb2.TrainEvalPipelineConfig) -> Iterator[str]:
    readers = [('training', pipeline.train_input_reader)]
    readers += [('evaluation', each) for each in pipeline.eval_input_reader]
    for use, reader in readers:
        paths = ', '.join(f'`{path}`' for path in _paths(reader))
        yield f'- {use}: {paths or "not named by the config"}'


def _paths(reader: input_reader_pb2.InputReader) -> Sequence[str]:
    kind = reader.WhichOneof('input_reader')
    return getattr(getattr(reader, kind), 'input_path', ()) if kind else ()


def _origins(config: str) -> Iterator[str]:
    """Yields a line for each model of which the weights come, the nearest first."""
    seen: list[str] = []
    while (path := run_files.started_from(config)) and path not in seen[:_MAX_ORIGINS]:
        seen.append(path)
        published = _published(path)
        yield f'- `{path}`' + (f': {published}' if published else '')
        if published:
            return
        base = run_files.base_config(config)
        if base is None:
            yield '- Its licence is not known here: ask who published these weights.'
            return
        config = base.read_text(encoding='utf-8', errors='replace')
    if path is None:
        yield '- that one began from random weights' if seen else '- none: from random weights'


def _published(path: str) -> str:
    """Returns the publisher and licence of weights that `tfod weights` knows; '' of others."""
    parts = pathlib.PurePath(path).parts
    for name, detector in DETECTORS.items():
        is_file = not detector.beside and detector.file.name in parts
        if name in parts or is_file:
            of = detector.publisher
            return (
                f'{name} of the {of.title}, trained on {of.data}. Licence: {of.licence} ({of.page})'
            )
    for name, weights in WEIGHTS.items():
        if weights.file.name in parts:
            return (
                f'{name} of keras.applications, trained on ImageNet. Licence: that of the network '
                'there (https://keras.io/api/applications)'
            )
    return ''
