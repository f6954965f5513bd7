"""Checks the data sets of files or of a config, and writes what was found."""

import dataclasses
import json
import os
import time
import types
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from object_detection.config import families
from object_detection.config.reader import read_pipeline
from object_detection.dataset_tools.inspection import check_job, findings, record_sets
from object_detection.dataset_tools.inspection.findings import CheckedSet
from object_detection.errors import UserError, expected
from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig
from object_detection.system import files

if TYPE_CHECKING:
    from object_detection.runtime.runtime import Runtime


class Result(NamedTuple):
    """What a check found.

    Attributes:
      sets: the data sets.
      label_map_problems: why label maps cannot be used; there are no sets then.
      facts: name -> value, for the head of the page.
    """

    sets: list[CheckedSet]
    label_map_problems: list[str]
    facts: dict[str, str]

    @property
    def is_harmful(self) -> bool:
        """Whether something would hurt a training."""
        return bool(self.label_map_problems) or any(map(findings.harmful, self.sets))

    def overview(self) -> str:
        """Returns the lines that the command prints."""
        problems = [f'HARMFUL  {problem}' for problem in self.label_map_problems]
        return '\n'.join([*problems, findings.overview(self.sets)]).strip()

    def to_dict(self) -> dict[str, Any]:
        """Returns everything as values of JSON."""
        return {
            'harmful': self.is_harmful,
            'label_map_problems': self.label_map_problems,
            'sets': [findings.to_dict(checked) for checked in self.sets],
        }

    def write(self, page_path: str, json_path: str = '', counts_path: str = '') -> None:
        """Writes the page and, unless their paths are '', the JSON file and the label map.

        The label map is that of the first set, with its number of images of each class.

        Raises:
          UserError: if there is a path but no label map.
        """
        # Imported here, since matplotlib is slow to import.
        from object_detection.dataset_tools.inspection import check_page

        folder = os.path.dirname(page_path)
        if folder:
            os.makedirs(folder, exist_ok=True)
        check_page.write(page_path, self.sets, self.facts, self.label_map_problems)
        if json_path:
            files.write_text(json_path, json.dumps(self.to_dict(), indent=1) + '\n')
        if counts_path:
            if not self.sets or not self.sets[0].records.label_map_path:
                raise UserError('--image_counts: expected a label map of the data. Received: none.')
            files.write_text(counts_path, findings.label_map_with_counts(self.sets[0]))


def check(
    data: Sequence[str],
    *,
    label_map_path: str = '',
    settings: Sequence[str] = (),
    workers: int = 1,
    decodes: bool = True,
    progress: Callable[[int, int | None], None] = lambda done, total: None,
) -> Result:
    """Checks TFRecord files, or all input readers of a config.

    Args:
      data: names or patterns of files, or the name of one config.
      label_map_path: label map of files; '' accepts all classes.
      settings: FIELD.PATH=VALUE texts that change the config.
      workers: number of processes.
      decodes: whether images and masks are decoded.
      progress: called with the number of checked records, and None.

    Raises:
      UserError: if there are no files, the config cannot be read, or options do not fit each other.
    """
    start = time.monotonic()
    is_config = data[0].endswith(record_sets.CONFIG_ENDINGS)
    if is_config and (len(data) > 1 or label_map_path):
        raise expected('tfod data check', 'one config without --label_map, or TFRecord files', data)
    if settings and not is_config:
        raise UserError('--set: expected a config, of which it changes fields. Received: files.')
    pipeline = read_pipeline(data[0], settings=settings) if is_config else None
    try:
        if pipeline is None:
            sets = [record_sets.of_files(data, label_map_path, decodes=decodes)]
        else:
            sets = list(record_sets.of_config(pipeline, decodes=decodes))
    except record_sets.LabelMapError as error:
        return Result([], [str(error)], {})
    if not sets:
        raise UserError(f'{data[0]}: expected an input reader with files. Received: none.')
    checked, done = [], 0
    training = None
    for records in sets:
        summary = check_job.run(
            records,
            workers=workers,
            progress=lambda number, total, done=done: progress(done + number, total),
        )
        done += summary.num_records
        checked.append(findings.collect(records, summary, training, _anchors(pipeline, summary)))
        if records.name == 'train_input_reader':
            training = records, summary
    seconds = time.monotonic() - start
    facts = {
        'data': ', '.join(data[:3]) + (f' and {len(data) - 3} more' if len(data) > 3 else ''),
        'checked': f'{done:,} records in {seconds:.1f} s',
        'images': 'decoded' if decodes else 'headers only',
    }
    return Result(checked, [], facts)


def rank_labels(
    result: Result,
    detector: 'Runtime',
    top: int,
    *,
    progress: Callable[[int, int | None], None] = lambda done, total: None,
) -> Result:
    """Adds the labels that a detector doubts to each set.

    Args:
      result: what `check` returned.
      detector: runs on all images.
      top: how many labels of a set the page shows.
      progress: called with the number of images that are done, and of all.

    Raises:
      UserError: if the detector does not classify, or has none of the classes of a set.
    """
    # Imported here, since it needs TensorFlow, as the detector does.
    from object_detection.dataset_tools.inspection import label_judge

    sets, done = [], 0
    total = sum(checked.summary.num_records for checked in result.sets)
    for checked in result.sets:
        labels = label_judge.rank(
            checked.records, detector, top, lambda number, done=done: progress(done + number, total)
        )
        sets.append(dataclasses.replace(checked, labels=labels))
        done += checked.summary.num_records
    return result._replace(sets=sets)


def _anchors(pipeline: TrainEvalPipelineConfig | None, summary) -> Any:
    options = pipeline and families.anchors(pipeline.model)
    if not options or not len(summary.boxes.rows):
        return None
    return _anchor_share().measure(options, summary.boxes.rows)


def _anchor_share() -> types.ModuleType:
    """Loads TensorFlow, once the records were read, and the module that needs it."""
    from object_detection.system import tensorflow_setup

    tensorflow_setup.import_tensorflow()
    from object_detection.dataset_tools.inspection import anchor_share

    return anchor_share


def propose_anchors(
    config: str,
    *,
    settings: Sequence[str] = (),
    counts: tuple[int, int] = (0, 0),
    seed: int = 0,
    workers: int = 1,
    progress: Callable[[int, int | None], None] = lambda done, total: None,
) -> tuple[str, str]:
    """Proposes anchors for the training data of a config.

    Args:
      config: name of the config.
      settings: FIELD.PATH=VALUE texts that change the config.
      counts: numbers of sizes and aspects; 0 takes as many as the config has.
      seed: of the sample of boxes and of k-means.
      workers: number of processes.
      progress: called with the number of read records, and None.

    Returns:
      A fragment of a config, and a sentence on the objects that match before and after.

    Raises:
      UserError: if the config has no anchors, or its training data no objects; if the counts do not
        fit the generator.
    """
    pipeline = read_pipeline(config, settings=settings)
    options = families.anchors(pipeline.model)
    kind = options and options.generator.WhichOneof('anchor_generator_oneof')
    if not kind:
        raise UserError(f'{config}: expected a model with an anchor generator. Received: none.')
    _check_counts(kind, counts)
    sets = [
        records
        for records in record_sets.of_config(pipeline, decodes=False)
        if records.name == 'train_input_reader'
    ]
    if not sets:
        raise UserError(f'{config}: expected a train_input_reader with files. Received: none.')
    rows = check_job.run(sets[0], workers=workers, progress=progress).boxes.rows
    if not len(rows):
        raise UserError(f'{config}: train_input_reader: expected records with usable objects.')
    anchor_share = _anchor_share()
    found = anchor_share.propose(options, rows, anchor_share.Counts(*counts), seed)
    same = found.generator == options.generator
    text = (
        f'{1 - found.before.unmatched:.1%} of the objects have an anchor with an IoU of at least '
        f'{options.threshold:g} before, {1 - found.after.unmatched:.1%} after; the mean of the '
        f'best IoUs is {found.before.best_iou.mean():.3f} before, '
        f'{found.after.best_iou.mean():.3f} after.'
        + (' No better anchors were found: these are those of the config.' if same else '')
    )
    return anchor_share.fragment(pipeline.model, options, found.generator), text


def _check_counts(kind: str, counts: tuple[int, int]) -> None:
    num_sizes, num_aspects = counts
    if num_sizes and kind not in ('grid_anchor_generator', 'multiscale_anchor_generator'):
        raise expected(
            '--num_sizes', 'a grid_anchor_generator or multiscale_anchor_generator', kind
        )
    if num_aspects and kind == 'flexible_grid_anchor_generator':
        raise expected('--num_aspects', 'a generator whose grids do not fix it', kind)
