"""Finds problems of a config before anything slow starts.

It checks the config and the names of files, then the builders, which load TensorFlow, and lists the
problems of both together; then, if there are none, the first records.
"""

import functools
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping

from object_detection.builders.input_readers import channels
from object_detection.builders.input_readers import rules as reader_rules
from object_detection.config import families, ranges, report, synthetic_data, walk
from object_detection.data import label_map, shard_names
from object_detection.errors import ConfigError, UserError, backslash_hint, sentences
from object_detection.meta_architectures import tracing
from object_detection.meta_architectures.tracing import problems as builder_problems
from object_detection.protos.input_reader_pb2 import (
    CocoInputReader,
    InputReader,
    TFRecordInputReader,
)
from object_detection.protos.model_pb2 import DetectionModel
from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig
from object_detection.system import console, files, tensorflow_setup
from object_detection.validation import augmentation, label_map_rules, records, warnings
from object_detection.validation import eval_config as eval_config_rules
from object_detection.validation import train_config as train_config_rules

_GROUP_NORM = 'Hyperparams.group_norm'


def _rules_of_family(pipeline: TrainEvalPipelineConfig) -> Iterator[str]:
    """Yields the problems of `pipeline.model` that are found without the builders."""
    return families.find(pipeline.model).rules(families.options(pipeline.model))


def check_model(pipeline: TrainEvalPipelineConfig, *, stages: bool = False) -> Iterator[str]:
    """Yields what is wrong with the model, which is built without values.

    Args:
      pipeline: the config.
      stages: whether the stages of the model are traced too.
    """
    tensorflow_setup.import_tensorflow()
    problems = list(_traced(pipeline, stages))
    yield from problems
    if not problems:
        yield from _quantization(pipeline)


def _traced(pipeline: TrainEvalPipelineConfig, stages: bool) -> Iterator[str]:
    try:
        tracing.check(pipeline.model, channels.of_detector(pipeline), stages=stages)
    except ValueError as error:
        for sentence in sentences(error):
            yield _with_norm(pipeline.model, sentence)


def _with_norm(model: DetectionModel, sentence: str) -> str:
    """Adds the paths of the group norms that an error of layers is about."""
    fitting = [
        found.path
        for found in walk.set_fields(model, path='model')
        if found.key == _GROUP_NORM and f'Received: {found.value.groups}.' in sentence
    ]
    is_about = 'group_norm.groups: ' in sentence and fitting
    return f'{" or ".join(fitting)}: {sentence}' if is_about else sentence


def _quantization(pipeline: TrainEvalPipelineConfig) -> Iterator[str]:
    """Yields a problem if layers of the model cannot be quantized."""
    if not pipeline.graph_rewriter.HasField('quantization'):
        return
    from object_detection.meta_architectures import detector

    try:
        detector.check_quantization(pipeline)
    except ValueError as error:
        yield str(error)


def check_training(pipeline: TrainEvalPipelineConfig) -> Iterator[str]:
    """Yields the errors of the builders of the optimizer and the augmentation."""
    tensorflow_setup.import_tensorflow()
    from object_detection.builders import optimizer_builder, preprocessor_builder

    config = pipeline.train_config
    path = 'train_config.optimizer'
    yield from builder_problems(optimizer_builder.check, config.optimizer, path)
    for index, step in enumerate(config.data_augmentation_options):
        path = f'train_config.data_augmentation_options[{index}]'
        yield from builder_problems(preprocessor_builder.build, step, path)


def check_callbacks(pipeline: TrainEvalPipelineConfig) -> Iterator[str]:
    """Yields the errors of the callbacks, which a training has, and an evaluation of it."""
    from object_detection.builders import callback_builder

    for index, each in enumerate(pipeline.train_config.callback):
        yield from builder_problems(callback_builder.build, each, f'train_config.callback[{index}]')


def check_evaluation(pipeline: TrainEvalPipelineConfig) -> Iterator[str]:
    """Yields the errors of the evaluators, built for the classes of each reader."""
    tensorflow_setup.import_tensorflow()
    from object_detection.builders import evaluator_builder  # loads the COCO engine

    config = pipeline.eval_config
    for index, reader in enumerate(pipeline.eval_input_reader):
        path = f'eval_config, with the names of eval_input_reader[{index}].label_map_path'
        categories = evaluator_builder.categories(reader, pipeline.model)
        problems = list(builder_problems(evaluator_builder.build, config, path, categories))
        yield from problems
        if problems:
            return
    known = {
        name: evaluator_builder.metric_names(pipeline, index)
        for index, name in enumerate(eval_config_rules.reader_names(pipeline))
    }
    yield from eval_config_rules.check_metrics(pipeline, known)


_AFTER_STEPS = ' (after train_config.data_augmentation_options)'
PLACEHOLDER = 'PATH_TO_BE_CONFIGURED'

Rule = Callable[[TrainEvalPipelineConfig], Iterator[str]]


def validate(
    pipeline: TrainEvalPipelineConfig,
    *,
    for_what: str | Collection[str],
    prepare: Callable[[], None] = lambda: None,
    resumes: bool = False,
    reads_all: bool = False,
    known: Collection[str] = (),
) -> None:
    """Checks the parts of a config that a purpose needs; warns of set fields without effect.

    Args:
      pipeline: the config with overrides applied.
      for_what: one or several of `PURPOSES`.
      prepare: called after the checks that need no TensorFlow, if they find nothing.
      resumes: whether a training resumes from its own checkpoint, so that it reads no other one.
      reads_all: whether all records are read, to find corrupt ones, and not only the first; and the
        model is not only built, but its stages are traced with images of its size.
      known: problems that were found when the config was read.

    Raises:
      ConfigError: listing every problem, each with the path of its field.
      ValueError: if `for_what` is not a purpose.
    """
    purposes = [for_what] if isinstance(for_what, str) else list(for_what)
    if not purposes or not set(purposes) <= set(PURPOSES):
        raise UserError(f'validate: expected for_what among {PURPOSES}. Received: {for_what!r}.')
    parts = {part for purpose in purposes for part in _PARTS[purpose]}
    findings = ranges.find(pipeline, parts)
    problems = [*known, *findings.errors, *_unusable_texts(pipeline, parts)]
    unnamed = list(families.named_problems(pipeline.model)) if 'model' in parts else []
    if unnamed:
        # The rules ask the family, which has to be known.
        _raise_if_any([*problems, *unnamed])
    # Builders find what else is wrong with a config that has numbers out of their range.
    usable = ranges.mended(pipeline) if findings.errors else pipeline
    for rules in (_RULES, _BUILDER_RULES, _RECORD_RULES):
        before = list(problems)
        if rules is _BUILDER_RULES and not problems:
            prepare()
        due = dict.fromkeys(rule for purpose in purposes for rule in rules[purpose])
        traces = reads_all and check_model in due
        with console.phase('tracing the model' if traces else 'checking the config'):
            for rule in due:
                if traces and rule is check_model:
                    rule = functools.partial(check_model, stages=True)
                if not (resumes and rule is _fine_tuning):
                    problems += rule(pipeline) if rules is _RULES else _others(rule, usable, before)
        if rules is not _RULES:
            _raise_if_any(problems)
    if reads_all:
        with console.phase('reading all records'):
            _raise_if_any(list(records.check_all(pipeline, parts)))
    # Warnings about a config with errors are not shown.
    report.current().warn_unused(findings.warnings)
    warnings.warn(pipeline, parts, resumes=resumes)


def _others(rule: Rule, pipeline: TrainEvalPipelineConfig, known: Collection[str]) -> Iterator[str]:
    """Yields what a rule finds that neither follows from known problems nor repeats them."""
    paths = [path for problem in known if (path := _path(problem))]
    try:
        for problem in rule(pipeline):
            if not any(_is_within(_path(problem), path) for path in paths):
                yield problem
    except Exception:
        # A builder relies on the rules; of a config that breaks them it may raise anything.
        if not known:
            raise


def _path(problem: str) -> list[str]:
    """Returns the names and indices in the path that a sentence begins with."""
    found = re.match(r'[\w.\[\]]*', problem)
    return re.findall(r'\w+', found[0]) if found else []


def _is_within(path: list[str], other: list[str]) -> bool:
    """Returns whether one of two paths is that of a part of the other, or of the same."""
    return all(a == b for a, b in zip(path, other, strict=False))


def _raise_if_any(problems: list[str]) -> None:
    if problems:
        problems = list(dict.fromkeys(problems))
        count = 'one problem' if len(problems) == 1 else f'{len(problems)} problems'
        listed = ''.join(f'\n  {problem}' for problem in problems)
        raise ConfigError(f'The config has {count}:{listed}')


def _unusable_texts(pipeline: TrainEvalPipelineConfig, parts: Collection[str]) -> Iterator[str]:
    """Yields a sentence for each text that is a placeholder or contains NUL bytes."""
    for found in walk.set_fields(pipeline):
        if (
            not isinstance(found.value, str)
            or found.path.replace('[', '.').split('.')[0] not in parts
            or ranges.options(found.field).is_unread
        ):
            continue
        if '\0' in found.value:
            yield f'{found.path}: expected text without NUL bytes. Received: {found.value!r}.'
        elif PLACEHOLDER in found.value:
            yield f'{found.path} still says {found.value!r}; expected a path of yours.'


def _can_be_path(text: str) -> bool:
    """Returns whether `_unusable_texts` finds no problem with a path."""
    return PLACEHOLDER not in text and '\0' not in text


def _train_config(pipeline: TrainEvalPipelineConfig) -> Iterator[str]:
    if not pipeline.HasField('train_config'):
        yield 'train_config is not set.'
        return
    config = pipeline.train_config
    if config.num_steps < 1 and not config.HasField('num_epochs'):
        yield (
            'train_config.num_steps: expected the number of steps to train, there or as '
            '--num_train_steps (or epochs: train_config.num_epochs, --num_epochs). Received: 0.'
        )
    if config.HasField('num_epochs') and config.num_steps:
        yield (
            'train_config.num_steps, train_config.num_epochs: expected one of them. '
            f'Received: {config.num_steps} and {config.num_epochs:g}.'
        )
    yield from _optimizer(config)


def _fine_tuning(pipeline: TrainEvalPipelineConfig) -> Iterator[str]:
    if _can_be_path(pipeline.train_config.fine_tune_checkpoint):
        yield from train_config_rules.check_fine_tuning(pipeline)


def _optimizer(config) -> Iterator[str]:
    path = 'train_config.optimizer'
    kind = config.optimizer.WhichOneof('optimizer')
    if kind is None:
        yield f'{path} is not set; expected e.g. momentum_optimizer.'
        return
    rate = getattr(config.optimizer, kind).learning_rate
    if rate.WhichOneof('learning_rate') is None:
        yield f'{path}.{kind}.learning_rate is not set; expected e.g. cosine_decay_learning_rate.'


def _train_input(pipeline: TrainEvalPipelineConfig) -> Iterator[str]:
    if not pipeline.HasField('train_input_reader'):
        yield 'train_input_reader is not set.'
        return
    reader = pipeline.train_input_reader
    yield from _reader(reader, 'train_input_reader', pipeline)
    needs = families.needs(pipeline.model)
    if needs.masks and not reader.load_instance_masks:
        yield (
            'train_input_reader.load_instance_masks is false, but the model'
            f'{_mask_setting(pipeline, "")} trains on masks; set it to true.'
        )
    yield from _flags(reader, 'train_input_reader', pipeline, needs.reader_flags)
    if needs.keypoints and not reader.num_keypoints:
        yield (
            'train_input_reader.num_keypoints is 0, but the model trains on keypoints; set it to '
            'the number of the keypoints of an object in the data.'
        )


def _eval_input(pipeline: TrainEvalPipelineConfig) -> Iterator[str]:
    if not pipeline.eval_input_reader:
        yield 'eval_input_reader is not set.'
    for index, reader in enumerate(pipeline.eval_input_reader):
        path = f'eval_input_reader[{index}]'
        yield from _reader(reader, path, pipeline)
        if not reader.label_map_path and not synthetic_data.is_synthetic(reader):
            yield f'{path}.label_map_path is not set; metrics need the names in it.'
        needs = {
            'load_instance_masks': eval_config_rules.mask_sets(pipeline.eval_config),
            'load_image_labels': eval_config_rules.label_sets(pipeline.eval_config),
        }
        for field, names in needs.items():
            if names and not getattr(reader, field):
                yield (
                    f'{path}.{field} is false, but eval_config.metrics_set has {names[0]}; set it '
                    'to true.'
                )
        if pipeline.eval_config.parameterized_metric and not reader.num_keypoints:
            yield (
                f'{path}.num_keypoints is 0, but eval_config.parameterized_metric measures '
                'keypoints; set it to the number of keypoints in the label map.'
            )


def _eval_config(pipeline: TrainEvalPipelineConfig) -> Iterator[str]:
    config = pipeline.eval_config
    mask_sets = eval_config_rules.mask_sets(config)
    needs = families.needs(pipeline.model)
    if mask_sets and not needs.predicts_masks:
        yield (
            f'eval_config.metrics_set has {mask_sets[0]}, but the model predicts no masks'
            f'{_mask_setting(pipeline, "expected ")}.'
        )
    if config.parameterized_metric and not needs.keypoints:
        yield ('eval_config.parameterized_metric measures keypoints, but the model predicts none.')
    if pipeline.eval_input_reader:
        yield from eval_config_rules.check(pipeline)


def _mask_setting(pipeline: TrainEvalPipelineConfig, before: str) -> str:
    """Returns, in parentheses, the setting that makes the model predict masks; '' if none does."""
    setting = families.needs(pipeline.model).mask_setting
    return f' ({before}{families.path(pipeline.model)}.{setting})' if setting else ''


def _reader(reader: InputReader, path: str, pipeline: TrainEvalPipelineConfig) -> Iterator[str]:
    yield from reader_rules.check(reader, path)
    yield from channels.check(pipeline, reader, path)
    yield from reader_rules.check_buckets(reader, path, pipeline.model)
    yield from reader_rules.check_data_service(reader, path, pipeline.train_config)
    if reader.HasField('coco_input_reader'):
        yield from _coco_files(reader.coco_input_reader, f'{path}.coco_input_reader')
    # Opening the data sets of the other readers checks their paths.
    elif reader_rules.reads_annotations(reader):
        pass
    elif not synthetic_data.is_synthetic(reader):
        yield from _record_files(reader.tf_record_input_reader, f'{path}.tf_record_input_reader')
    yield from _label_map(reader.label_map_path, f'{path}.label_map_path', pipeline)
    yield from _flags(reader, path, pipeline, families.needs(pipeline.model).input_flags)


def _flags(
    reader: InputReader, path: str, pipeline: TrainEvalPipelineConfig, flags: Mapping[str, str]
) -> Iterator[str]:
    """Yields a sentence for each flag of the reader that a field of the model needs to be true."""
    for flag, field in flags.items():
        if not getattr(reader, flag):
            yield (
                f'{path}.{flag} is false, but {families.path(pipeline.model)}.{field} '
                'needs what it loads; set it to true.'
            )


def _record_files(reader: TFRecordInputReader, path: str) -> Iterator[str]:
    for index, pattern in enumerate(reader.input_path):
        if not _can_be_path(pattern):
            continue
        found = files.matches(pattern)
        folders = [name for name in found if os.path.isdir(name)]
        problem = shard_names.problem(found, pattern, glob=files.matches, exists=files.exists)
        if not found:
            problem = f'no file matches {pattern!r}{backslash_hint(pattern)}.'
        elif folders:
            problem = f'expected files of records. Received: {folders[0]!r}, a folder.'
        if problem:
            yield f'{path}.input_path[{index}]: {problem}'


def _coco_files(reader: CocoInputReader, path: str) -> Iterator[str]:
    for name, what in (('image_dir', 'folder'), ('annotation_file', 'file')):
        for index, value in enumerate(getattr(reader, name)):
            if _can_be_path(value) and not files.exists(value):
                yield f'{path}.{name}[{index}]: there is no {what} {value!r}.'


def _label_map(path: str, field: str, pipeline: TrainEvalPipelineConfig) -> Iterator[str]:
    if not path or not _can_be_path(path):
        return
    if not files.exists(path):
        yield f'{field}: there is no file {path!r}.'
        return
    try:
        ids = set(label_map.load(path).name_to_id.values())
    except ValueError as error:
        yield f'{field}: {error}'
        return
    left = ids
    if field.startswith('train_input_reader'):
        left = augmentation.ids_trained_on(ids, pipeline.train_config)
    max_id = max(left, default=0)
    model = pipeline.model.WhichOneof('model')
    num_classes = families.num_classes(pipeline.model)
    if max_id > num_classes > 0:
        yield (
            f'model.{model}.num_classes is {num_classes}, but {field} ({path}) has ids up to '
            f'{max_id}{"" if left == ids else _AFTER_STEPS}; expected at least {max_id}.'
        )


_PARTS = {
    'train': ('model', 'train_config', 'train_input_reader', 'graph_rewriter'),
    'eval': ('model', 'eval_config', 'eval_input_reader', 'graph_rewriter'),
    'export': ('model', 'graph_rewriter'),
}

_RULES: dict[str, tuple[Rule, ...]] = {
    'train': (
        _rules_of_family,
        _train_config,
        augmentation.check,
        _fine_tuning,
        _train_input,
        train_config_rules.check,
        train_config_rules.check_quantization,
    ),
    'eval': (
        _rules_of_family,
        _eval_config,
        _eval_input,
        label_map_rules.check,
        train_config_rules.check_averages,
        train_config_rules.check_quantization,
    ),
    'export': (_rules_of_family, train_config_rules.check_quantization),
}

_BUILDER_RULES: dict[str, tuple[Rule, ...]] = {
    'train': (check_model, check_training, check_callbacks),
    'eval': (check_model, check_evaluation, check_callbacks),
    'export': (check_model,),
}

_RECORD_RULES: dict[str, tuple[Rule, ...]] = {
    'train': (records.check_training,),
    'eval': (records.check_evaluation,),
    'export': (),
}

PURPOSES = tuple(_RULES)
